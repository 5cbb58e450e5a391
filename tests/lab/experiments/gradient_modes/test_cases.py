"""Reported confusions end as observed, and the line to blame is named first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.contract import silent
from lab.experiments.gradient_modes import Params, Result, explain, run

CASES = Path(__file__).resolve().parents[3] / "cases/gradient_mode_cases.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
}
CULPRITS = {"gm-02": 3, "gm-03": 3, "gm-04": 6, "gm-06": 4} | {
    name: row["culprit_line"] for name, row in ROWS.items() if row.get("culprit_line")
}


def seen(code: str) -> Result:
    return run(Params(code=code), silent)


def blamed(result: Result) -> set[int | None]:
    """First lines of all findings, and of the fault."""
    lines = {finding.line for finding in explain(result)}
    return lines | ({result.fault.sites[0].line} if result.fault and result.fault.sites else set())


@pytest.mark.parametrize("name", ROWS)
def test_a_reported_confusion(name: str):
    row = ROWS[name]
    result = seen(row["snippet"])
    if row["error"]:
        assert result.fault is not None
        assert result.fault.type == row["error"]
        assert CULPRITS[name] in {site.line for site in result.fault.sites}
        assert row["observed"]["message"][:150] in result.fault.message
    else:
        assert result.fault is None
        assert CULPRITS[name] in blamed(result)


def test_the_line_of_birth_comes_before_the_line_that_fails():
    fault = seen(ROWS["gm-26"]["snippet"]).fault
    assert fault is not None
    assert [site.line for site in fault.sites][:2] == [3, 8]
