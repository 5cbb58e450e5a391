"""The programs of tests/cases: the ordinary ones run, the reported confusions end as observed."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lab import wire
from lab.contract import silent
from lab.experiments.autograd_graph import Params, Result, explain, run

CASES = Path(__file__).resolve().parents[3] / "cases"
RELEASE = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
OBSERVED_ON = (2, 13)


def rows(name: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in map(json.loads, (CASES / name).read_text(encoding="utf-8").splitlines())}


PROGRAMS = rows("programs.jsonl")
CONFUSIONS = {at: row for at, row in rows("cases.jsonl").items() if row["page"] == "autograd_graph"}


def observe(code: str) -> Result:
    """The result, after the trip through the wire that every result makes."""
    result = run(Params(code=code), silent)
    back = wire.decode(Result, wire.loads(wire.dumps(result)))
    assert wire.dumps(back) == wire.dumps(result)
    return back


@pytest.mark.parametrize("at", PROGRAMS)
def test_ordinary_programs_run(at: str) -> None:
    result = observe(PROGRAMS[at]["code"])
    assert result.fault is None, result.fault
    assert result.nodes or result.no_graph
    assert all(finding.level != "fault" for finding in explain(result))


def same(expected: Any, got: Any) -> bool:
    """As the cases write numbers: six digits, NaN and infinity as text in any case."""
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and expected.keys() == got.keys()
            and all(same(v, got[k]) for k, v in expected.items())
        )
    if isinstance(expected, list):
        return isinstance(got, list) and len(expected) == len(got) and all(map(same, expected, got))
    if str(expected).lower() in ("nan", "inf", "-inf"):
        named = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
        return str(expected).lower() == named.get(got, str(got).lower())
    if isinstance(expected, float) and isinstance(got, (int, float)):
        return math.isclose(expected, got, rel_tol=1e-4, abs_tol=1e-6)
    return expected == got


RENAMED = (
    ("BackwardHookFunctionBackward is", "BackwardHookFunction is"),
    (
        "One of the differentiated Tensors appears to not have been u",
        "The differentiated Tensor at index 0 appears to not have bee",
    ),
)
"""What older releases say, and what 2.13 says; a case may have cut it at 60 letters."""


def as_on_2_13(text: str) -> str:
    for before, here in RENAMED:
        text = text.replace(before, here) if RELEASE < OBSERVED_ON else text
    return text


def check_confusion(row: dict[str, Any]) -> Result:
    result, observed = observe(row["snippet"]), row["observed"]
    assert (result.fault.type if result.fault else None) == row["error"]
    if "message" in observed and result.fault:
        assert as_on_2_13(result.fault.message).startswith(observed["message"][:60])
    if "result" in observed:
        got = wire.loads(as_on_2_13(wire.dumps(result.variables["result"])))
        assert same(observed["result"], got), result.variables["result"]
    for text in observed.get("warnings", ()):
        beginning = text.split(": ", 1)[1][:50]
        assert any(w.text.startswith(beginning) for w in result.warned), (beginning, result.warned)
    return result


@pytest.mark.parametrize("at", CONFUSIONS)
def test_confusions_end_as_observed(at: str) -> None:
    row = CONFUSIONS[at]
    if RELEASE != OBSERVED_ON and "version-dependent" in row["tags"]:
        observe(row["snippet"])  # another release may answer otherwise; it must still be shown
        return
    result = check_confusion(row)
    if result.fault:
        assert result.fault.line is not None
        assert result.fault.explanation
        assert result.fault.repair
        assert any(finding.level == "fault" for finding in explain(result))


@pytest.mark.parametrize(
    ("at", "key", "value"),
    [
        ("ag-14", "result", {"x": 36.1, "y": None, "y_is_leaf": False}),
        ("ag-28", "result", {"forward": [-6.75, 0.8], "grad": ["inf", 0.625]}),
        ("ag-01", "message", "some other text"),
        ("ag-25", "warnings", ["UserWarning: another warning"]),
    ],
)
def test_a_wrong_observation_is_noticed(at: str, key: str, value: Any) -> None:
    row = CONFUSIONS[at]
    with pytest.raises(AssertionError):
        check_confusion({**row, "observed": {**row["observed"], key: value}})
