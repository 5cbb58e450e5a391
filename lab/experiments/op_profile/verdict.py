"""What the step is bound by, and the one thing to try next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab.experiments.op_profile.device_work import busy_s
from lab.experiments.op_profile.schema import Params
from lab.experiments.op_profile.steps import step_rows
from lab.instruments.profiling.tree import Tree
from lab.records.profiling import StepParts, Verdict

SHORT_CALL_S = 10e-6
"""A call with less self time than this is mostly dispatch: the same call on one element takes some microseconds."""

_NAMES = {
    "input": "waiting for the next batch",
    "copies": "copying to the device",
    "host": "Python and the dispatch of short operators",
    "device": "operators that do real work",
}


def verdict(params: Params, step: StepParts, tree: Tree) -> Verdict:
    """``tree`` is the profile of ``step``."""
    shares = shares_of(step, tree, on_device=params.device != "cpu")
    bound: Any = max(shares, key=lambda name: shares[name])
    change, label, reason = next(_next_steps(bound, params, step), ({}, "", "Nothing here would change it."))
    return Verdict(bound, f"{shares[bound]:.0%} of the step is {_NAMES[bound]}.", shares, change, label, reason)


def shares_of(step: StepParts, tree: Tree, *, on_device: bool) -> dict[str, float]:
    """Shares of the step; they add up to 1. What is neither input, nor copies, nor work is the host's."""
    loading, copy = (step.data_loading_s or 0.0) / step.total_s, (step.copy_to_device_s or 0.0) / step.total_s
    working = busy_s([tree]) if on_device else work_s(tree)
    working = min(working / step.total_s, max(0.0, 1 - loading - copy))
    return {"input": loading, "copies": copy, "host": max(0.0, 1 - loading - copy - working), "device": working}


def work_s(tree: Tree) -> float:
    """Self time of the calls that are long enough to be work, outside loading and copying."""
    events, skipped, total_ns = tree.events, set(), 0
    for row in step_rows(tree):
        if events.name[row] in ("data_loading", "copy_to_device") or tree.parent[row] in skipped:
            skipped.add(row)
        elif events.kind[row] == "op" and tree.self_ns[row] >= SHORT_CALL_S * 1e9:
            total_ns += tree.self_ns[row]
    return total_ns / 1e9


def _next_steps(bound: str, params: Params, step: StepParts) -> Iterator[tuple[dict[str, Any], str, str]]:
    """What to change, what the button says, why; the first is taken."""
    ours = params.model != "own"
    if bound == "input" and ours:
        if params.workers < 2:
            workers = params.workers + 1
            yield (
                {"workers": workers},
                f"Load with {workers} worker process{'es'[: 2 * (workers > 1)]}",
                "The batch is then prepared while the step runs.",
            )
        return
    if bound == "copies":
        if params.device == "cuda" and not params.pin_memory and ours:
            yield {"pin_memory": True}, "Pin the memory", "The copy then runs beside the work of the device."
        return
    if step.optimizer_s > 0.2 * step.total_s and params.optimizer_impl != "fused":
        yield (
            {"optimizer_impl": "fused"},
            "Fuse the optimizer",
            "One kernel updates all parameters in one pass over memory.",
        )
    if not params.set_to_none:
        yield (
            {"set_to_none": True},
            "Drop the gradients",
            "Filling them with zeros writes memory that is overwritten at once.",
        )
    if bound == "host" and ours and params.batch < 1024:
        batch = min(4096, params.batch * 8)
        yield {"batch": batch}, f"Raise the batch to {batch}", "The same number of calls then does more work each."
    if bound == "device":
        yield from _faster_work(params)


def _faster_work(params: Params) -> Iterator[tuple[dict[str, Any], str, str]]:
    if params.model == "cnn" and not params.channels_last:
        yield (
            {"channels_last": True},
            "Order images channels last",
            "Convolutions then read neighbours from one cache line.",
        )
    if params.precision == "fp32" and params.model != "lstm":
        yield (
            {"precision": "bf16_autocast"},
            "Compute in bfloat16",
            "Half the bytes, and more arithmetic a second where the chip has it.",
        )
    if params.model != "own" and not params.compile:
        yield {"compile": True}, "Compile the model", "Chains of elementwise operators become one pass over memory."
