"""Knobs: meanings from the strings under fields, limits that hold, and messages that name knob, value and limit."""

from __future__ import annotations

import importlib
import math
import pkgutil
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import lab.experiments
from lab.contract import (
    LEVELS,
    Finding,
    Limits,
    ParamsError,
    by_level,
    check,
    field_meanings,
    headline,
    knob,
    knobs,
    offers,
    program_knob,
    silent,
)
from lab.quantities import bytes_text, number_text, seconds_text


@dataclass(frozen=True)
class Params:
    depth: int = knob(8, low=1, high=64, step=1)
    """Layers, one
    behind the other.

    A second paragraph."""
    rate: float = knob(0.1, low=0.0, high=1.0, unit="per step")
    """Learning rate."""
    kind: str = knob("relu", choices=("relu", "tanh"))
    """Activation."""
    bias: bool = True
    """Whether layers have one."""
    cap: float | None = knob(None, low=0.0)
    """Clip at this norm; none: do not."""
    code: str = knob("x = 1", program=Limits(wall_s=2.0), max_bytes=10)
    undocumented: int = 3

    def __post_init__(self) -> None:
        check(self)


PAGES = sorted(module.name for module in pkgutil.iter_modules(lab.experiments.__path__))


def test_findings_are_sorted_by_level_and_stay_in_order_within_one() -> None:
    found = [Finding(level=level, title=title, text="", evidence={}) for level in LEVELS for title in "ab"]
    mixed = [*found[::2], *found[1::2]]
    assert by_level(mixed) == found
    with pytest.raises(TypeError):
        Finding("fact", "title", "text", {})  # pyright: ignore[reportCallIssue]


def test_an_experiment_without_options_offers_everything_and_compares_nothing() -> None:
    bare = SimpleNamespace(Params=Params)
    assert offers(bare, asdict(Params())) == knobs(Params)
    assert headline(bare, object()) == {}


@pytest.mark.parametrize("name", PAGES)
def test_every_lesson_has_values_that_its_page_offers(name: str) -> None:
    experiment = importlib.import_module(f"lab.experiments.{name}")
    for lesson in experiment.lessons:
        values = asdict(lesson.params)
        offered = offers(experiment, values)
        assert set(offered) <= set(knobs(experiment.Params))
        assert all(k.check(values[n]) is None for n, k in offered.items()), lesson.title


def test_meanings_are_the_first_paragraphs() -> None:
    meanings = field_meanings(Params)
    assert meanings["depth"] == "Layers, one behind the other."
    assert meanings["cap"] == "Clip at this norm; none: do not."
    assert "undocumented" not in meanings
    assert knobs(Params)["undocumented"].meaning == ""


def test_knobs_know_their_fields() -> None:
    found = knobs(Params)
    assert list(found) == ["depth", "rate", "kind", "bias", "cap", "code", "undocumented"]
    assert [k.kind for k in found.values()] == [int, float, str, bool, float, str, int]
    assert [name for name, k in found.items() if k.optional] == ["cap"]
    assert found["rate"].label == "rate (per step)"
    assert (found["depth"].default, found["depth"].low, found["depth"].high) == (8, 1, 64)
    program = program_knob(Params)
    assert program
    assert program.name == "code"
    assert program.program == Limits(wall_s=2.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth": 0}, "depth = 0 is outside 1 to 64"),
        ({"depth": 65}, "depth = 65 is outside 1 to 64"),
        ({"depth": 2.0}, "depth must be a whole number, not 2.0"),
        ({"depth": True}, "depth must be a whole number, not True"),
        ({"depth": "8"}, "depth must be a whole number, not '8'"),
        ({"depth": None}, "depth must be a whole number, not None"),
        ({"rate": math.nan}, "rate = nan is outside 0.0 to 1.0 per step"),
        ({"rate": math.inf}, "rate = inf is outside"),
        ({"rate": True}, "rate must be a number, not True"),
        ({"kind": "gelu"}, "kind = 'gelu' is not one of relu, tanh"),
        ({"bias": 1}, "bias must be true or false, not 1"),
        ({"cap": -1.0}, "cap = -1.0 is outside 0.0 to inf"),
        ({"code": "é" * 6}, "code has 12 bytes; the limit is 10"),
        ({"code": b"x"}, "code must be text"),
    ],
)
def test_limits_hold(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError) as raised:
        Params(**values)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    "values", [{"depth": 1}, {"depth": 64}, {"rate": 0}, {"rate": 1.0}, {"cap": None}, {"cap": 3}, {"code": "\ud800"}]
)
def test_limits_are_inclusive(values: dict[str, Any]) -> None:
    Params(**values)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("depth", "12", 12),
        ("rate", "1e-3", 1e-3),
        ("bias", "False", False),
        ("bias", "1", True),
        ("cap", "none", None),
        ("cap", "2", 2.0),
        ("kind", "tanh", "tanh"),
        ("code", "none", "none"),
    ],
)
def test_values_from_texts(name: str, text: str, value: Any) -> None:
    parsed = knobs(Params)[name].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("depth", "eight", "depth must be a whole number, not 'eight'"),
        ("depth", "1.5", "depth must be a whole number"),
        ("depth", "99", "depth = 99 is outside 1 to 64"),
        ("depth", "9" * 5000, "depth must be a whole number"),
        ("rate", "nan", "rate = nan is outside"),
        ("bias", "yes", "bias must be true or false, not 'yes'"),
        ("kind", "", "kind = '' is not one of"),
    ],
)
def test_texts_that_are_no_value(name: str, text: str, message: str) -> None:
    with pytest.raises(ParamsError) as raised:
        knobs(Params)[name].parse(text)
    assert str(raised.value).startswith(message)
    assert len(str(raised.value)) < 200


def test_silent_tells_nobody() -> None:
    assert silent(0.5, "half") is None


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB (1,024 B)"),
        (1536, "1.50 KiB (1,536 B)"),
        (1048576, "1.00 MiB (1,048,576 B)"),
        (3 << 30, "3.00 GiB (3,221,225,472 B)"),
        (1 << 60, "1024.00 PiB (1,152,921,504,606,846,976 B)"),
        (-2048, "-2.00 KiB (-2,048 B)"),
    ],
)
def test_bytes_in_words(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1, "1 s"),
        (90.04, "90 s"),
        (0.0015, "1.5 ms"),
        (2e-6, "2 µs"),
        (3.21e-7, "321 ns"),
        (-0.5, "-500 ms"),
        (1234, "1,234 s"),
        (0.9999, "1 s"),
        (9.996e-4, "1 ms"),
        (999.96, "1,000 s"),
        (9.9999e-7, "1 µs"),
    ],
)
def test_seconds_in_words(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0, "1"),
        (-2.5, "−2.5"),
        (1 / 3, "0.3333"),
        (1e-9, "1e−09"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (12345678, "1.235e+07"),
    ],
)
def test_numbers_in_words(value: float, text: str) -> None:
    assert number_text(value) == text
