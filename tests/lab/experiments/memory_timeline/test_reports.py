"""Programs that people reported: the bytes of the bare run, who holds what, why it grows; healthy look-alikes stay silent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.contract import Finding, silent
from lab.experiments import memory_timeline
from lab.experiments.memory_timeline import measure, tracking
from lab.experiments.memory_timeline.schema import Params, Result
from lab.instruments.memory import engine_sums, kept, unseen
from lab.records.memory import CATEGORIES, Seconds

CASES = {
    case["id"]: case
    for line in (Path(__file__).resolve().parents[3] / "cases/memory_reports.jsonl").read_text().splitlines()
    if (case := json.loads(line))
}
PEAKS = {
    "m03": 765_140, "m04": 4_042_840, "m06": 819_752, "m11": 25_100_296, "m13": 3_232_524, "m15": 4_975_672,
    "m19": 1_696_816, "m22": 1_573_548, "m23": 756_236, "m25": 1_115_656, "n1": 1_688_368, "n2": 7_028_808,
}  # fmt: skip
"""Peaks of bare runs, as they were found in the reports."""
GROWTH = {
    # program -> bytes a step, operation, name, how it is held, a word of the repair
    "m03": (131_072, "tanh", "rows[*]", "view", "clone()"),
    "m04": (524_288, "clamp", "ctx.y of Gate", "tensor", "save_for_backward"),
    "m06": (32_768, "sub.Tensor", "buffer[*]", "tensor", "detach()"),
    "m22": (256_000, "addmm", "outputs[*]['logits']", "tensor", "number"),
    "m23": (131_072, "relu", "model.total", "graph", "detach()"),
}


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(measure, "step_seconds", lambda settings: [Seconds(1.0, 1.0, 1.0, 3) for _ in settings])
    monkeypatch.setattr(measure, "changes", lambda params: [])
    monkeypatch.setattr(measure, "compared", lambda params: [])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(case: str, **knobs: Any) -> Result:
    return memory_timeline.run(Params(code=CASES[case]["code"], **{**CASES[case]["params"], **knobs}), silent)


def own(code: str, **knobs: Any) -> Result:
    return memory_timeline.run(Params(model="own", code=code, **{"optimizer": "sgd", **knobs}), silent)


def found(result: Result, title: str) -> Finding | None:
    return next((f for f in memory_timeline.explain(result) if title in f.title), None)


@pytest.mark.parametrize("case", PEAKS)
def test_the_peak_is_that_of_the_bare_run(case):
    result = run(case)
    assert result.peak.bytes == sum(result.peak.categories.values())
    assert result.peak.bytes == pytest.approx(PEAKS[case], rel=0.01)
    assert result.bare_peak_bytes == pytest.approx(result.peak.bytes, abs=64)
    assert found(result, "The bare run has another peak") is None


def test_planted_sums_out_of_place_are_said(monkeypatch):
    monkeypatch.setattr(engine_sums.EngineSums, "bare", lambda self, func, args, fresh: func)
    assert found(run("n2"), "The bare run has another peak")


def test_memory_inside_an_operator_is_its_own():
    result = run("m04")
    assert (result.peak.op, result.peak.categories["workspaces"]) == ("mul.Tensor", 524_288)
    lives = zip(result.lives.category, result.lives.bytes, result.lives.storage, strict=True)
    casts = [s for category, size, s in lives if CATEGORIES[category] == "workspaces" and size == 524_288]
    assert {result.storages.op[s] for s in casts} == {"mul.Tensor"}


def test_a_planted_workspace_at_the_neighbour_is_caught(monkeypatch):
    original = unseen._unseen_storage

    def neighbour(number: int, block: Any, track: Any) -> Any:
        block.op = max(block.op - 1, 0)
        return original(number, block, track)

    monkeypatch.setattr(unseen, "_unseen_storage", neighbour)
    with pytest.raises(AssertionError):
        test_memory_inside_an_operator_is_its_own()


@pytest.mark.parametrize("case", GROWTH)
def test_growth_names_who_holds_what(case):
    size, op, name, holds, repair = GROWTH[case]
    result = run(case)
    row = max((row for row in result.kept if row.step == len(result.step_ends) - 2), key=lambda row: row.bytes)
    assert (row.bytes, row.op, row.name, row.holds) == (size, op, name, holds)
    assert row.line
    assert row.name_line
    assert result.step_ends[-1] - result.step_ends[-2] == pytest.approx(size, rel=0.01)
    finding = found(result, "Each step leaves")
    assert finding
    assert name in finding.text
    assert repair in finding.repair
    assert finding.change == {}


def test_a_planted_holder_that_is_not_seen_is_caught(monkeypatch):
    monkeypatch.setattr(kept, "contexts", lambda: iter(()))
    with pytest.raises(AssertionError):
        test_growth_names_who_holds_what("m04")


def test_what_the_model_holds_by_name_is_not_saved():
    for case, name, size in (("m21", "model.mask", 4_194_304), ("n5", "model.cos", 1_048_576)):
        result = run(case)
        assert result.saved_bytes < 0.1 * size
        finding = found(result, "holds other tensors")
        assert finding
        assert f"{name} (line" in finding.text
        assert "no buffer" in finding.text
        assert found(result, "small view") is None
        assert (result.unseen_bytes or 0) < 0.01 * size


def test_a_planted_walk_without_names_is_caught(monkeypatch):
    monkeypatch.setattr(tracking, "names", lambda subject: {})
    with pytest.raises(AssertionError):
        test_what_the_model_holds_by_name_is_not_saved()


def test_a_feature_that_is_kept_with_its_gradient_has_its_name():
    finding = found(run("n6"), "holds other tensors")
    assert finding
    assert "model.kept " in finding.text
    assert "model.kept.grad " in finding.text


@pytest.mark.parametrize(
    ("case", "words"),
    [("m25", "other shapes"), ("n6", "that the program holds"), ("m01", "optimizer state"), ("m09", "graph of step 1")],
)
def test_the_second_step_says_why(case, words):
    finding = found(run(case), "second step")
    assert finding
    assert words in finding.text
    if case != "m01":
        assert "optimizer state" not in finding.text


def test_saved_bytes_count_what_segments_hold():
    assert run("m01").saved_bytes == run("m01", checkpoint="none").saved_bytes == 1_048_576


def test_saved_bytes_count_what_is_on_ctx():
    code = (
        "class Keep(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        ctx.half = x * 0.5\n"
        "        return x + 1\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        return g * ctx.half\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(8, 64)\n"
        "    def forward(self, x):\n"
        "        return Keep.apply(self.fc(x)).sum()\n"
        "model, batch = Net(), torch.randn(32, 8)\n"
        "def loss(model, batch):\n"
        "    return model(batch)\n"
    )
    assert own(code).saved_bytes == 32 * 64 * 4


def test_checkpointing_is_decided_by_segments(monkeypatch):
    from lab.experiments.memory_timeline.settings import compared

    monkeypatch.setattr(measure, "compared", compared)
    dense = run("m18")
    assert found(dense, "Nothing to checkpoint") is None
    finding = found(dense, "Checkpointing does not lower")
    assert finding
    assert "8 segments" in finding.text


@pytest.mark.parametrize(
    ("case", "title", "words"),
    [("m11", "logits", "3 tensors"), ("m15", "94% of the parameters are frozen", "99,072 of 105,216")],
)
def test_parts_without_a_line_are_named(case, title, words):
    finding = found(run(case), title)
    assert finding
    assert words in finding.text


def test_a_dense_gradient_of_an_embedding_is_named_and_a_sparse_one_is_not():
    code = (
        "model = nn.Embedding(5000, 32, sparse=SPARSE)\n"
        "batch = torch.randint(0, 5000, (4, 8))\n"
        "def loss(model, batch):\n    return model(batch).square().mean()\n"
    )
    assert found(own(code.replace("SPARSE", "False")), "embedding is dense")
    assert found(own(code.replace("SPARSE", "True")), "embedding is dense") is None


HEALTHY = {
    "numbers are kept": "losses = []\ndef loss(model, batch):\n    l = model(batch).square().mean()\n    losses.append(l.item())\n    return l\n",
    "a bounded buffer": "from collections import deque\nlast = deque(maxlen=1)\ndef loss(model, batch):\n    y = model(batch)\n    last.append(y.detach())\n    return y.square().mean()\n",
    "saved for backward": "def loss(model, batch):\n    y = torch.relu(model(batch))\n    print('step', y.shape)\n    return y[:, -1].square().mean()\n",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_look_alikes_are_silent(name):
    result = own(f"model, batch = nn.Linear(64, 512), torch.randn(128, 64)\n{HEALTHY[name]}", steps=4)
    assert not result.fault
    for title in (
        "Each step leaves",
        "small view",
        "logits",
        "frozen",
        "embedding is dense",
        "seen only by",
        "bare run",
    ):
        assert found(result, title) is None, title


def test_a_value_that_is_stored_in_a_closure_has_its_variable():
    code = (
        "def make():\n    cache = []\n    def loss(model, batch):\n        y = model(batch)\n        cache.append(y.detach())\n"
        "        return y.square().mean()\n    return loss\n"
        "model, batch = nn.Linear(64, 512), torch.randn(128, 64)\nloss = make()\n"
    )
    finding = found(own(code, steps=3), "Each step leaves")
    assert finding
    assert "loss.cache[*] (line 5)" in finding.text


def test_what_a_hook_keeps_is_said_to_be_in_a_hook():
    code = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(64, 512)\n"
        "        seen = []\n        self.fc.register_forward_hook(lambda m, i, o: seen.append(o.detach()))\n"
        "    def forward(self, x):\n        return self.fc(x)\n"
        "model, batch = Net(), torch.randn(128, 64)\n"
    )
    finding = found(own(code, steps=3), "Each step leaves")
    assert finding
    assert "a hook of model.fc" in finding.text
    assert "seen" in finding.text
