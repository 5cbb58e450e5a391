"""Kinds of trouble that people met with memory: each snippet as it is, and through the experiment where it can run."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.contract import silent
from lab.experiments import memory_timeline
from lab.experiments.memory_timeline import measure
from lab.experiments.memory_timeline.schema import Params, Result
from lab.records.memory import Seconds

CASES = {
    case["id"]: case
    for line in (Path(__file__).resolve().parents[3] / "cases/cases.jsonl").read_text().splitlines()
    if (case := json.loads(line))["page"] == "memory_timeline"
}
PLAIN = [case for case in CASES.values() if case["runs_on"] == "cpu"]


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch):
    monkeypatch.setattr(measure, "step_seconds", lambda settings: [Seconds(1.0, 1.0, 1.0, 3) for _ in settings])
    monkeypatch.setattr(measure, "changes", lambda params: [])


def run(**knobs: Any) -> Result:
    return memory_timeline.run(Params(**knobs), silent)


def peaks(result: Result) -> list[int]:
    """Peak of each setting."""
    assert all(run.peak_bytes is not None for run in result.runs)
    return [run.peak_bytes or 0 for run in result.runs]


def titles(result: Result) -> list[str]:
    return [finding.title for finding in memory_timeline.explain(result)]


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case["id"])
def test_the_snippet_does_what_was_observed(case):
    names: dict[str, Any] = {"__name__": "case"}
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(case["snippet"], case["id"], "exec"), names)
        except Exception as raised:  # noqa: BLE001 - the case names the type
            error = raised
    if case["id"] == "mem-25" and torch.backends.cuda.is_built():  # a CUDA build has the name, and finds no device
        assert isinstance(error, RuntimeError)
        return
    assert (type(error).__name__ if error else None) == case["error"]
    observed = case["observed"]
    if "result" in observed:
        assert names["result"] == observed["result"]
    if "message" in observed:
        assert " ".join(str(error).split()).startswith(observed["message"])
    for text in observed.get("warnings", []):
        assert any(text.partition(": ")[2] in str(w.message) for w in caught), text


def test_a_planted_other_observation_is_seen():
    case = CASES["mem-24"] | {"observed": {"result": {"retain_graph=False": 1, "retain_graph=True": 1}}}
    with pytest.raises(AssertionError):
        test_the_snippet_does_what_was_observed(case)


def test_reentrant_checkpoint_without_gradients():  # mem-05
    result = run(model="mlp", layers=2, optimizer="sgd", checkpoint="every", reentrant=True)
    assert result.without_gradient == 4
    assert any("None of the inputs have requires_grad" in w.text for w in result.warned)
    assert "A checkpointed segment is not trained" in titles(result)


def test_another_mask_in_the_second_forward_is_printed():  # mem-07
    code = CASES["mem-07"]["snippet"] + "print(result)\nmodel = nn.Linear(2, 2)\nbatch = torch.ones(1, 2)\n"
    assert "preserve_rng_state=False_over_a_third': True" in run(model="own", code=code).printed


def test_a_recomputed_tensor_of_another_shape():  # mem-09
    code = (
        "class Growing(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc, self.n = nn.Linear(4, 4), 2\n"
        "    def forward(self, x):\n"
        "        self.n += 1\n"
        "        return self.fc(x.repeat(self.n, 1).square())[:3]\n"
        "model = nn.Sequential(Growing(), Growing())\n"
        "batch = (torch.randn(3, 4), torch.randn(3, 4))\n"
    )
    result = run(model="own", code=code, checkpoint="every")
    assert result.fault is not None
    assert result.fault.type == "CheckpointError"
    found = memory_timeline.explain(result)[0]
    assert found.level == "fault"
    assert found.evidence["saved"] != found.evidence["recomputed"]
    assert result.timeline.index, "what was recorded up to there"


def test_autocast_costs_memory_with_a_tiny_batch():  # mem-13, mem-29
    small = run(model="mlp", layers=4, width=256, batch=1, optimizer="sgd", precision="bf16_autocast")
    large = run(model="mlp", layers=4, width=256, batch=4096, optimizer="sgd", precision="bf16_autocast")
    (fp32, low, *_), (fp32_large, low_large, *_) = peaks(small), peaks(large)
    assert low > fp32
    assert low_large < fp32_large


def test_half_precision_outside_autocast():  # mem-15
    code = (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "            h = self.a(x)\n"
        "        return self.b(h)\n"
        "model = Net()\n"
        "batch = (torch.ones(1, 4), torch.ones(1, 4))\n"
    )
    fault = run(model="own", code=code).fault
    assert fault is not None
    assert fault.line == 8
    assert "autocast" in fault.explanation


def test_which_operations_autocast_changes():  # mem-16
    dtypes = {(row.op, row.dtype) for row in run(model="mlp", layers=1, precision="bf16_autocast").dtypes}
    assert ("addmm", "bfloat16") in dtypes
    assert ("nll_loss_forward", "float32") in dtypes


def test_no_grad_first_inside_autocast_still_trains():  # mem-17
    code = (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        with torch.no_grad():\n"
        "            self.fc(x)\n"
        "        return self.fc(x)\n"
        "model = Net()\n"
        "batch = (torch.ones(1, 4), torch.ones(1, 4))\n"
    )
    result = run(model="own", code=code, precision="bf16_autocast")
    assert not result.fault
    assert result.without_gradient == 0


def test_a_kept_exception_is_counted():  # mem-18
    hit = run(optimizer="sgd", cap_bytes=12_000_000).oom
    assert hit is not None
    assert hit.held_by_exception_bytes > 0


def test_one_backward_at_the_end_keeps_all_graphs():  # mem-20
    _, each, joined = peaks(run(optimizer="sgd", accumulate=4, one_backward=True))
    assert joined > each


def test_retain_graph_by_habit():  # mem-24
    result = run(optimizer="sgd", retain_graph=True)
    assert "The graph outlives backward" in titles(result)
    rows = zip(result.timeline.phase, result.timeline.saved, strict=True)
    assert max(saved for phase, saved in rows if phase == "optimizer") > 0.9 * result.saved_bytes


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a CPU build cannot measure")
def test_without_a_gpu_there_is_no_zero_instead_of_a_number():  # mem-25, mem-27, mem-28
    result = run(model="mlp", layers=1)
    assert result.allocator is None
    assert "CUDA" in result.allocator_reason


def test_the_peak_inside_the_optimizer():  # mem-30
    for impl, copies in (("forloop", 0), ("foreach", 1)):
        result = run(model="mlp", layers=8, width=128, batch=1, optimizer="adam", optimizer_impl=impl)
        assert result.peak.phase == "optimizer"
        assert result.peak.categories["temporaries"] // result.start["parameters"] == copies
