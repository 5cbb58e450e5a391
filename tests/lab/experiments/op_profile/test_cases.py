"""The kinds of confusion that people report: each snippet does here what was observed, and each has its trap on the page."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from lab.experiments.op_profile.traps import spring

CASES = [
    case
    for line in (Path(__file__).resolve().parents[3] / "cases/cases.jsonl").read_text().splitlines()
    if (case := json.loads(line))["page"] == "op_profile"
]
SHOWN_BY = {
    "pr-01": "self_total", "pr-03": "sort_key", "pr-05": "schedule", "pr-08": "export_twice", "pr-10": "memory",
    "pr-11": "memory", "pr-15": "no_device", "pr-17": "step_rows", "pr-18": "step_rows", "pr-20": "backward_rows",
    "pr-21": "labels", "pr-23": "warm_up", "pr-24": "clocks",
}  # fmt: skip


def test_every_case_has_its_trap():
    assert {case["id"] for case in CASES} == set(SHOWN_BY)


def outcome(snippet: str) -> tuple[object, str, list[str]]:
    """(``result``, the message of the error, the warnings)."""
    names: dict = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(snippet, names)
        except Exception as error:  # noqa: BLE001 - the error is the observation
            return None, f"{type(error).__name__}: {error}", []
    return names.get("result"), "", [f"{w.category.__name__}: {w.message}" for w in caught]


@pytest.mark.parametrize("case", [case for case in CASES if case["runs_on"] == "cpu"], ids=lambda case: case["id"])
def test_the_snippet_does_what_was_observed(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some snippets write a trace
    result, message, warned = outcome(case["snippet"])
    observed = case["observed"]
    if case["error"]:
        assert message.startswith(case["error"])
        assert observed["message"] in message
    else:
        assert not message
        assert json.loads(json.dumps(result)) == observed["result"]
    for expected in observed.get("warnings", []):
        assert any(text.startswith(expected) for text in warned)


@pytest.mark.parametrize("case", [case for case in CASES if case["error"]], ids=lambda case: case["id"])
def test_the_trap_meets_the_same_error(case):
    trap = spring(SHOWN_BY[case["id"]], "cpu")
    assert trap
    assert trap.message.startswith(case["error"])
    assert case["observed"]["message"] in trap.message
    assert any(reading.program == "repaired" for reading in trap.readings)


def test_asking_for_a_missing_device_is_said():
    trap = spring("no_device", "cpu")
    assert trap
    assert "CUDA is not available" in trap.message
    assert [r.value for r in trap.readings if r.name == "has a CUDA column"] == ["False"]
