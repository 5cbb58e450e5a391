"""From what was measured to the result."""

from __future__ import annotations

from collections.abc import Sequence

from lab.experiments.op_profile.device_work import busy_s, kernels
from lab.experiments.op_profile.schema import Params, Result
from lab.experiments.op_profile.steps import Measured, root_row, step_rows
from lab.experiments.op_profile.timeline import timeline
from lab.experiments.op_profile.verdict import verdict
from lab.instruments.profiling.places import NOWHERE, Place, same_operations
from lab.instruments.profiling.step_clock import spread
from lab.instruments.profiling.tables import Calls, group, merge_calls
from lab.records.profiling import CallTree, Iteration, Overhead, Trap
from lab.records.program import SILENT, Said


def result_of(
    params: Params, measured: Measured, notes: Sequence[str], trap: Trap | None, said: Said = SILENT
) -> Result:
    """Tables, verdict and timeline of the profiled steps."""
    on_device = params.device != "cpu"
    trees = measured.trees
    places, missing = _places(params, measured)
    calls = merge_calls((tree, step_rows(tree), place) for tree, place in zip(trees, places, strict=True))
    steps = [(i.parts, tree) for i, tree in zip(_of_kind(measured, "profiled"), trees, strict=True) if i.parts]
    steps.sort(key=lambda pair: pair[0].total_s)
    step, tree_of_step = steps[(len(steps) - 1) // 2] if steps else (None, None)
    busy = busy_s(trees) if on_device and trees else None
    return Result(
        step=step,
        iterations=tuple(measured.iterations),
        profiled_steps=len(trees),
        steps_cut=measured.cut,
        operators=group(calls, params.group_by, device=on_device),
        calls=_call_tree(calls, on_device),
        kernels=kernels(trees) if on_device else None,
        device_busy_s=busy,
        timeline=timeline(trees),
        overhead=_overhead(measured) if trees else None,
        ceilings=measured.ceilings,
        verdict=verdict(params, step, tree_of_step) if step and tree_of_step else None,
        trap=trap,
        lines_of="program" if params.model == "own" else "model",
        places_missing=missing,
        compile_s=measured.compile_s,
        notes=tuple(notes),
        device=params.device,
        fault=measured.fault,
        **said.fields(),
    )


def _places(params: Params, measured: Measured) -> tuple[list[list[Place]], str]:
    """The place of every row of every tree, and why there are none."""
    nowhere = [[NOWHERE] * len(tree.parent) for tree in measured.trees]
    if measured.marked is None:
        why = "A compiled step runs generated code: its operators have no module and no line." if params.compile else ""
        return nowhere, why
    marked, marks = measured.marked
    places = marks.places(marked)
    found = [same_operations(tree, marked, places) for tree in measured.trees]
    if None in found:
        return (
            nowhere,
            "The step does not run the same operators each time, so modules and lines cannot be given to them.",
        )
    return [place for place in found if place is not None], ""


def _overhead(measured: Measured) -> Overhead:
    bare = spread([i.total_s for i in _of_kind(measured, "bare")])
    profiled = spread([i.total_s for i in _of_kind(measured, "profiled")])
    marked_s = None
    if measured.marked:
        tree = measured.marked[0]
        marked_s = tree.events.duration_ns[root_row(tree)] / 1e9
    events = sum(len(tree.events) for tree in measured.trees)
    return Overhead(bare, profiled, profiled.min / bare.min, events // len(measured.trees), marked_s)


def _of_kind(measured: Measured, kind: str) -> list[Iteration]:
    return [iteration for iteration in measured.iterations if iteration.kind == kind]


def _call_tree(calls: Calls, on_device: bool) -> CallTree:
    return CallTree(
        parent=tuple(calls.parent),
        name=tuple(calls.name),
        is_operator=tuple(calls.is_operator),
        shapes=tuple(calls.shapes),
        module=tuple(calls.module),
        line=tuple(calls.line),
        stack=tuple(calls.stack),
        calls=tuple(calls.calls),
        self_s=tuple(calls.self_s),
        total_s=tuple(calls.total_s),
        device_self_s=tuple(calls.device_self_s if on_device else [None] * len(calls.name)),
        flops=tuple(calls.flops),
        bytes=tuple(calls.bytes),
        moved_bytes=tuple(calls.moved_bytes),
    )
