"""The shared cases: each snippet gives what was observed, and each has a preset, a knob or a finding on this page."""

from __future__ import annotations

import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.contract import silent
from lab.experiments.gradient_flow import Params, explain, lessons, run
from lab.experiments.gradient_flow.layer_findings import clamp_slope_on_its_bound

CASES = [
    case
    for line in (Path(__file__).resolve().parents[3] / "cases/cases.jsonl").read_text().splitlines()
    if (case := json.loads(line))["page"] == "gradient_flow"
]
SHOWN_BY = {
    "gn-05": "clipping by norm: one factor for all",
    "gn-07": "one infinite gradient",
    "gn-11": "an exhausted generator of parameters",
    "gn-12": "a negative limit",
    "gn-13": "a limit of 0 is not off",
    "gn-14": "clipping before unscaling",
    "gn-17": "small gradients in half precision",
    "gn-19": "None, zero and frozen are three things",
    "gn-22": "a sum in the place of the mean",
    "gn-24": "stuck on the bound of hardtanh",
    "gn-25": "a bias that gets no gradient",
}
EXPLAINED = {"gn-15": "update()", "gn-23": "zero_grad()"}
"""Cases that raise, and a word of the explanation that a program with the same fault gets."""


def plain(value: Any) -> Any:
    """As the observations were written down: tensors as numbers, six digits, NaN and infinity by name."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else float(f"{value:.6g}")
    return value


def as_here(case: dict[str, Any]) -> Any:
    """What was observed, on the release that runs here."""
    observed = dict(case["observed"]["result"]) if isinstance(case["observed"]["result"], dict) else None
    if case["id"] == "gn-24" and observed and clamp_slope_on_its_bound() == 0:  # since torch 2.14
        return observed | {"clamp": observed["hardtanh"]}
    return case["observed"]["result"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_snippet_gives_what_was_observed(case):
    names: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if case["error"]:
            with pytest.raises(Exception, match=re.escape(case["observed"]["message"])) as raised:
                exec(case["snippet"], names)
            assert type(raised.value).__name__ == case["error"]
        else:
            exec(case["snippet"], names)
            assert plain(names["result"]) == as_here(case)
    for text in case["observed"].get("warnings", []):
        assert text.partition(": ")[2][:40] in " ".join(str(w.message) for w in caught)


@pytest.mark.parametrize("case", [case for case in CASES if case["error"]], ids=lambda case: case["id"])
def test_a_program_with_the_fault_gets_it_explained(case):
    fault = run(Params(family="own", code=case["snippet"]), silent).fault
    assert fault is not None
    assert fault.type == case["error"]
    assert EXPLAINED[case["id"]] in fault.explanation


def test_every_case_is_shown_somewhere():
    titles = {lesson.title for lesson in lessons}
    assert set(SHOWN_BY.values()) <= titles
    result = run(Params(depth=2, width=8, batch=4, steps=1, clip="norm", norm_type="1", clip_limit=1e-3), silent)
    assert any(finding.title.startswith("The limit is on the 1-norm") for finding in explain(result))
    assert {case["id"] for case in CASES} == set(SHOWN_BY) | set(EXPLAINED) | {"gn-06"}
