"""What happens on a release of torch that lacks a private name: that page refuses with the reason, the others go on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lab import torch_private
from lab.contract import NotAvailableError, silent
from lab.execution import perform
from lab.experiments import memory_timeline

ROOT = Path(__file__).resolve().parents[3]
SMALL: dict[str, dict[str, Any]] = {
    "autograd_graph": {},
    "gradient_flow": {"depth": 3, "width": 8, "steps": 1},
    "memory_timeline": {"model": "mlp", "layers": 2, "width": 8, "batch": 2},
    "module_anatomy": {},
    "op_profile": {"model": "mlp", "layers": 1, "width": 8, "batch": 2, "steps": 1, "warmup": 0},
    "train_eval": {},
}
"""Quick settings of every experiment that reads private names."""


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    torch_private.missing.cache_clear()
    yield
    torch_private.missing.cache_clear()


def gone(*args: Any, **kwargs: Any) -> Any:
    raise AttributeError("no such name in this release")


def refused() -> dict[str, str]:
    """Experiment -> why, of those that refuse their quick settings. Everything else must be done."""
    found = {}
    for name, knobs in SMALL.items():
        told = json.loads(perform.answer(name, knobs, silent))
        if told["state"] == "refused":
            found[name] = told["fault"]["message"]
            assert told["fault"]["type"] == "Refused"
        else:
            assert told["state"] == "done", told["fault"]
    return found


@pytest.mark.parametrize("capability", torch_private.SELF_TESTS)
def test_everything_is_available_here(capability: str) -> None:
    assert torch_private.missing(capability) == ""


GRAPH, MEMORY, PROFILE = "autograd_graph", "memory_timeline", "op_profile"
ALL_BUT_PROFILE = {GRAPH, MEMORY, "gradient_flow", "train_eval"}
OURS, THEIRS = "lab.torch_private.", "torch._C."
# capability -> (what is broken, what stands in its place, pages that refuse)
BREAKS: dict[str, tuple[str, Any, set[str]]] = {
    "saved tensors": (OURS + "saved_slots", lambda node: iter(()), {GRAPH, MEMORY}),
    "versions": ("torch.Tensor._version", property(lambda tensor: 0), {GRAPH, MEMORY}),
    "node records": (OURS + "node_metadata", lambda node: {}, {GRAPH, MEMORY}),
    "checkpoint markers": ("torch.utils.checkpoint._Holder", type("Renamed", (), {}), {GRAPH, MEMORY}),
    "storages": (OURS + "storage_key", lambda tensor: 7, {GRAPH, MEMORY, "module_anatomy"}),
    "hook tables": (OURS + "tensor_hooks", lambda tensor: {}, {"module_anatomy"}),
    "custom functions": (OURS + "CustomFunctions.__enter__", lambda self: None, {GRAPH}),
    "data reads": (OURS + "GET_DATA", None, {GRAPH}),
    "quiet subclasses": (THEIRS + "DisableTorchFunctionSubclass", gone, {GRAPH}),
    "function transforms": (THEIRS + "_functorch.is_functorch_wrapped_tensor", lambda t: False, ALL_BUT_PROFILE),
    "mode stacks": (THEIRS + "_len_torch_dispatch_stack", lambda: 0, ALL_BUT_PROFILE),
    "dispatch modes": (OURS + "operator", lambda name: None, {MEMORY}),
    "tensor parts": (OURS + "sparse_parts", gone, {MEMORY}),
    "engine hooks": (THEIRS + "_current_graph_task_id", lambda: -1, {MEMORY}),
    "engine runs": (OURS + "EngineRuns.__enter__", lambda self: None, {GRAPH}),
    "profiler events": (OURS + "profiler_events", lambda profiler: [], {PROFILE}),
    # parts of a page
    "fake tensors": (OURS + "FakeMode", gone, set()),
    "allocation events": (OURS + "allocator_events", lambda profile: ([], {}), set()),
    "engine sums": (OURS + "engine_alone_holds", lambda args: True, {MEMORY}),
    "CUDA allocator records": ("torch.cuda.memory._snapshot", None, set()),
}


def test_every_capability_is_broken_once() -> None:
    assert set(BREAKS) == set(torch_private.SELF_TESTS)


@pytest.mark.parametrize("capability", BREAKS)
def test_a_broken_capability_is_missing_and_says_why(capability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, stand_in, _ = BREAKS[capability]
    monkeypatch.setattr(name, stand_in, raising=False)
    why = torch_private.missing(capability)
    assert f"{capability[1:]} are not available with torch {torch.__version__}: " in why
    assert why == torch_private.missing(capability)
    with pytest.raises(NotAvailableError, match="are not available with torch"):
        torch_private.require(capability)


@pytest.mark.parametrize("capability", BREAKS)
def test_pages_that_need_it_refuse_and_the_others_run(capability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, stand_in, pages = BREAKS[capability]
    monkeypatch.setattr(name, stand_in, raising=False)
    why = torch_private.missing(capability)
    monkeypatch.undo()  # what shares the name goes on: the question here is who asks
    found = refused()
    assert set(found) == pages
    assert set(found.values()) <= {why}


def test_a_part_that_is_missing_leaves_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "FakeMode", gone)
    params = memory_timeline.Params(**SMALL["memory_timeline"])
    result = memory_timeline.run(params, silent)
    assert result.prediction is None
    assert result.prediction_reason.startswith(f"Fake tensors are not available with torch {torch.__version__}")
    assert result.unseen_reason == ""
    assert result.runs


def test_without_predictions_a_predicted_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "FakeMode", gone)
    told = json.loads(perform.answer("memory_timeline", {**SMALL["memory_timeline"], "predict": True}, silent))
    assert told["state"] == "refused"
    assert "Fake tensors" in told["fault"]["message"]


def test_allocations_that_are_not_seen_are_said_in_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "allocator_events", lambda profile: ([], {}))
    result = memory_timeline.run(memory_timeline.Params(**SMALL["memory_timeline"]), silent)
    assert result.unseen_reason.startswith(f"Allocation events are not available with torch {torch.__version__}")
    assert result.prediction


_NAMES = """
torch._C._functorch.is_functorch_wrapped_tensor torch._C._functorch.is_legacy_batchedtensor
torch._C._profiler._EventType torch._C._FunctionBase torch._C.DisableTorchFunctionSubclass
torch._C._len_torch_dispatch_stack torch._C._current_graph_task_id torch._C._current_autograd_node
torch._subclasses.fake_tensor.FakeTensor torch._subclasses.fake_tensor.FakeTensorMode
torch._subclasses.fake_tensor.DataDependentOutputException torch.multiprocessing.reductions.StorageWeakRef
torch.utils._python_dispatch.TorchDispatchMode torch.utils._python_dispatch.is_traceable_wrapper_subclass
torch.autograd._engine_run_backward torch.cuda.memory._snapshot torch.cuda.memory._record_memory_history
"""

WITHOUT = f"""
import importlib, sys
import torch, torch._subclasses.fake_tensor, torch.multiprocessing.reductions
import torch.utils.checkpoint, torch.utils.flop_counter, torch.profiler  # they use the names themselves
for name in {_NAMES.split()!r}:
    holder, _, last = name.rpartition(".")
    top, *path = holder.split(".")
    found = sys.modules[top]
    for part in path:
        found = getattr(found, part)
    delattr(found, last)
"""


def test_without_any_of_the_names_every_page_imports_and_the_start_page_runs() -> None:
    code = f"""{WITHOUT}
from lab.__main__ import main
assert main(["list"]) == 0
from streamlit.testing.v1 import AppTest
app = AppTest.from_file("lab/Home.py", default_timeout=60).run()
assert not app.exception, app.exception
print("the start page runs")
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "the start page runs" in ran.stdout, ran.stderr[-2000:]
    assert all(name in ran.stdout for name in SMALL)


def test_without_any_of_the_names_every_page_refuses_and_none_fails() -> None:
    code = f"""{WITHOUT}
import json
from lab.contract import silent
from lab.execution.perform import answer
told = {{name: json.loads(answer(name, knobs, silent)) for name, knobs in {SMALL!r}.items()}}
print({{name: (t["state"], t["fault"] and t["fault"]["message"]) for name, t in told.items()}})
assert {{t["state"] for t in told.values()}} == {{"refused"}}
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
