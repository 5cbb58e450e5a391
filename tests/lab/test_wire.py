"""The wire: what goes in comes out, and nothing else comes in."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from lab import wire
from lab.contract import silent
from lab.experiments.autograd_graph import Params, Result, run


@dataclass(frozen=True)
class Inner:
    count: int
    share: float = 0.0


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    many: tuple[Inner, ...] = ()
    table: dict[str, float] | None = None
    level: Literal["low", "high"] = "low"
    flag: bool = False
    anything: Any = None
    either: int | str = 0


FULL = Outer(
    "é\ud800", Inner(3, -0.5), (Inner(1), Inner(2, 1e300)), {"a": 1.5, "b": 2.0}, "high", True, [1, {"k": None}], "x"
)


def test_round_trip() -> None:
    assert wire.decode(Outer, wire.loads(wire.dumps(FULL))) == FULL
    assert wire.decode(Outer, {"name": "n", "inner": {"count": 1}}) == Outer("n", Inner(1))


@pytest.mark.parametrize(("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_numbers_that_json_lacks(value: float, text: str) -> None:
    data = json.loads(wire.dumps(Inner(1, value)))
    assert data == {"count": 1, "share": text}
    assert repr(wire.decode(Inner, data).share) == repr(value)
    assert wire.decode(Any, text) == text  # plain data stays in wire form  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3])
def test_floats_are_exact(value: float) -> None:
    assert repr(wire.decode(Inner, wire.loads(wire.dumps(Inner(1, value)))).share) == repr(value)


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", '{"a": -Infinity}', "{", "", "1 2", "[1,]", "{'a': 1}", "9" * 401, "\xff"]
)
def test_what_is_no_strict_json(text: str) -> None:
    with pytest.raises(wire.WireError, match="malformed JSON"):
        wire.loads(text)


def test_deep_json_is_refused_not_fatal() -> None:
    with pytest.raises(wire.WireError):
        wire.loads("[" * 100_000 + "]" * 100_000)
    nested: Any = 1
    for _ in range(wire.PLAIN_DEPTH):
        nested = [nested]
    assert wire.decode(Outer, {"name": "n", "inner": {"count": 1}, "anything": nested}).anything == nested
    with pytest.raises(wire.WireError, match="nesting of at most 32"):
        wire.decode(Outer, {"name": "n", "inner": {"count": 1}, "anything": [nested]})


GOOD = {"name": "n", "inner": {"count": 1}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"^Outer: expected an object, got \[\]"),
        (None, "^Outer: expected an object, got None"),
        ({}, "^Outer: inner, name missing"),
        ({**GOOD, "extra": 1}, "^Outer: unknown extra"),
        ({**GOOD, "inner": {}}, r"^Outer\.inner: count missing"),
        ({**GOOD, "inner": {"count": 1.0}}, r"^Outer\.inner\.count: expected int, got 1\.0"),
        ({**GOOD, "inner": {"count": True}}, r"^Outer\.inner\.count: expected int, got True"),
        ({**GOOD, "inner": {"count": "1"}}, r"^Outer\.inner\.count: expected int"),
        ({**GOOD, "inner": {"count": None}}, r"^Outer\.inner\.count: expected int"),
        ({**GOOD, "inner": {"count": 1, "share": True}}, r"^Outer\.inner\.share: expected a number"),
        ({**GOOD, "inner": {"count": 1, "share": "nan"}}, r"^Outer\.inner\.share: expected a number"),
        ({**GOOD, "many": [{"count": 1}, {"count": []}]}, r"^Outer\.many\[1\]\.count: expected int"),
        ({**GOOD, "many": {"count": 1}}, r"^Outer\.many: expected a list"),
        ({**GOOD, "many": "ab"}, r"^Outer\.many: expected a list"),
        ({**GOOD, "table": {"a": "x"}}, r"^Outer\.table\.a: expected a number"),
        ({**GOOD, "level": "middle"}, r"^Outer\.level: expected one of"),
        ({**GOOD, "level": ["low"]}, r"^Outer\.level: expected one of"),
        ({**GOOD, "flag": 1}, r"^Outer\.flag: expected bool, got 1"),
        ({**GOOD, "name": 3}, r"^Outer\.name: expected str"),
        ({**GOOD, "either": []}, r"^Outer\.either: expected"),
        ({"x" * 1000: 1, **GOOD}, r"^Outer: unknown x{80}$"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(data: Any, message: str) -> None:
    with pytest.raises(wire.WireError, match=message):
        wire.decode(Outer, data)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", 1 + 2j, range(3), Outer])
def test_only_plain_data_is_encoded(value: Any) -> None:
    with pytest.raises(wire.WireError, match="is not plain data"):
        wire.encode([value])


def test_a_result_survives_and_a_forged_one_does_not() -> None:
    result = run(Params(), silent)
    data = wire.loads(wire.dumps(result))
    assert wire.decode(Result, data) == result
    data["nodes"][2]["saved"][0]["bytes"] = "8"
    with pytest.raises(wire.WireError, match=r"^GraphResult\.nodes\[2\]\.saved\[0\]\.bytes: expected int"):
        wire.decode(Result, data)


def test_params_are_checked_on_arrival() -> None:
    with pytest.raises(ValueError, match="seed = -1 is outside"):
        wire.decode(Params, {"seed": -1})
