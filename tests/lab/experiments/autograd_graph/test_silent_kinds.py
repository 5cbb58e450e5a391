"""Each kind of silent fault: in a function, in a module, between lines that log, beside a caught error, with large tensors; and
its healthy twin, of which nothing of the kind is said."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lab.contract import Finding, silent
from lab.experiments.autograd_graph import Params, explain, run
from tests.lab.experiments.autograd_graph.silent_programs import KINDS, WRAPPED, written

ROOT = Path(__file__).resolve().parents[4]
SMALL, LARGE = 6, 10_000


@cache
def told(code: str) -> tuple[Finding, ...]:
    result = run(Params(code=code), silent)
    assert result.fault is None, result.fault
    return explain(result)


@pytest.mark.parametrize("elements", [SMALL, LARGE])
@pytest.mark.parametrize("wrapper", WRAPPED)
@pytest.mark.parametrize("name", KINDS)
def test_the_kind_is_named_with_its_line(name: str, wrapper: str, elements: int) -> None:
    code, line = written(KINDS[name].program, wrapper, elements)
    found = [f for f in told(code) if KINDS[name].words in f.title]
    assert found, [f.title for f in told(code)]
    assert line in (found[0].line, *(site.line for site in found[0].sites)), (found[0].line, found[0].sites, code)
    pressing = [f for f in told(code) if f.level in ("fault", "warning", "surprise")]
    assert found[0] in pressing[:2]


@pytest.mark.parametrize("elements", [SMALL, LARGE])
@pytest.mark.parametrize("wrapper", WRAPPED)
@pytest.mark.parametrize("name", KINDS)
def test_the_healthy_twin_is_left_alone(name: str, wrapper: str, elements: int) -> None:
    code, _ = written(KINDS[name].twin, wrapper, elements)
    assert not [f.title for f in told(code) if KINDS[name].words in f.title]


READ = [json.loads(row) for row in (ROOT / "tests/cases/read_programs.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", READ, ids=[row["id"] for row in READ])
def test_what_is_said_first_of_a_program(row: dict[str, Any]) -> None:
    """Forty healthy programs, of which nothing is said that asks to be acted on, and forty with a fault, read by hand."""
    result = run(Params(code=row["code"]), silent)
    pressing = [f for f in explain(result) if f.level in ("fault", "warning", "surprise")]
    if row["told"] is None:
        assert not [f.title for f in pressing]
        return
    assert pressing
    assert (pressing[0].title, pressing[0].sites[0].line) == (row["told"]["title"], row["told"]["line"])
