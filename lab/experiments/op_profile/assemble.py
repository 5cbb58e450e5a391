"""From what was measured to the result."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lab.experiments.op_profile.device_work import busy_s, kernels
from lab.experiments.op_profile.lessons import point_of
from lab.experiments.op_profile.schema import Params, Result
from lab.experiments.op_profile.steps import ROOT, Measured, leaves, loader_rows, mean_step, root_row, step_rows
from lab.experiments.op_profile.timeline import timeline
from lab.experiments.op_profile.verdict import verdict
from lab.instruments.profiling.dispatch import is_short, least, long_gap_ns, lost_ns, usual_ns
from lab.instruments.profiling.places import NOWHERE, Place, same_operations
from lab.instruments.profiling.python_time import python_ns
from lab.instruments.profiling.step_clock import is_steady, spread
from lab.instruments.profiling.tables import Calls, group, merge_calls
from lab.instruments.profiling.tree import Tree
from lab.quantities import seconds_text
from lab.records.profiling import CallTree, Dispatch, Iteration, Overhead, PythonTime, Trap
from lab.records.program import SILENT, Said


def result_of(
    params: Params, measured: Measured, notes: Sequence[str], trap: Trap | None, said: Said = SILENT
) -> Result:
    """Tables, verdict and timeline of the profiled steps."""
    on_device = params.device != "cpu"
    trees = measured.trees
    places, missing = _places(params, measured)
    calls = merge_calls((tree, step_rows(tree), place) for tree, place in zip(trees, places, strict=True))
    profiled = [i.parts for i in _of_kind(measured, "profiled") if i.parts]
    cost = least(measured.dispatch) if trees else None
    usual = usual_ns(trees, cost, measured.ceilings) if cost else []
    python = _python(measured, usual, cost) if cost else None
    busy = busy_s(trees) if on_device and trees else None
    return Result(
        step=mean_step(profiled) if profiled else None,
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
        verdict=verdict(
            list(zip(profiled, trees, usual, strict=True)),
            cost,
            on_device=on_device,
            python=python,
            trials=measured.trials,
        )
        if cost
        else None,
        trap=trap,
        lines_of="program" if params.model == "own" else "model",
        places_missing=missing,
        compile_s=measured.compile_s,
        notes=tuple(notes),
        device=params.device,
        fault=measured.fault,
        threads=torch.get_num_threads() if trees and not on_device else None,
        backends=backends(calls.name),
        dispatch=cost,
        tiny_share=_tiny_share(trees, usual, cost) if cost else None,
        python=python,
        trials=measured.trials,
        busy=_busy(measured),
        stateful=params.optimizer != "sgd",
        point=point_of(params),
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
    bare_s, profiled_s = (_calm_s(_of_kind(measured, kind)) for kind in ("bare", "profiled"))
    bare, profiled = spread(bare_s), spread(profiled_s)
    marked_s = None
    if measured.marked:
        tree = measured.marked[0]
        marked_s = tree.events.duration_ns[root_row(tree)] / 1e9
    events = sum(len(tree.events) for tree in measured.trees)
    each = events // len(measured.trees)
    return Overhead(bare, profiled, profiled.median / bare.median, each, marked_s, is_steady(bare_s))


def _calm_s(iterations: Sequence[Iteration]) -> list[float]:
    """Of the steps that were left alone; of all when there are fewer than three."""
    calm = [i.total_s for i in iterations if not i.disturbed]
    return calm if len(calm) >= min(3, len(iterations)) else [i.total_s for i in iterations]


def _busy(measured: Measured) -> str:
    """What says that the machine is busy: most steps disturbed, or those that were not do not agree."""
    bare = _of_kind(measured, "bare")
    if not bare:
        return ""
    count, all_s = sum(i.disturbed for i in bare), [i.total_s for i in bare]
    span = f"{seconds_text(min(all_s))} to {seconds_text(max(all_s))} for the same step"
    if count > len(bare) / 2:
        return f"Other programs took the processor in {count} of {len(bare)} bare steps: {span}."
    return "" if is_steady(_calm_s(bare)) else f"The bare steps do not agree: {span}."


def _python(measured: Measured, usual: Sequence[Sequence[float]], cost: Dispatch) -> PythonTime:
    """Work of Python in the parts that the program runs."""
    whole_s = sum(i.total_s for i in _of_kind(measured, "profiled"))
    whole_s -= sum(lost_ns(tree, of) for tree, of in zip(measured.trees, usual, strict=True)) / 1e9
    python_s = sum(python_ns(tree, PYTHON_PARTS, long_gap_ns(cost), loader_rows(tree)) for tree in measured.trees) / 1e9
    self_s, share = python_s / len(measured.trees), python_s / whole_s
    if measured.sampled is None:
        return PythonTime(self_s, share, (), 0, None)
    tree, sampler = measured.sampled
    notes, lines = sampler.lines(tree, PYTHON_PARTS, loader_rows(tree))
    roots = [row for row, name in enumerate(tree.events.name) if name == ROOT and tree.events.kind[row] == "range"]
    sampled_s = sum(tree.events.duration_ns[row] for row in roots) / 1e9 / len(roots)
    bare_s = spread(_calm_s(_of_kind(measured, "bare"))).median
    return PythonTime(self_s, share, lines, notes, sampled_s / bare_s)


PYTHON_PARTS = ("forward", "optimizer")


def _tiny_share(trees: Sequence[Tree], usual: Sequence[Sequence[float]], cost: Dispatch) -> float:
    """Of the operators that call no other: those of a step that are mostly dispatch."""
    inner = [is_short(of[row], cost) for tree, of in zip(trees, usual, strict=True) for row in leaves(tree)]
    return sum(inner) / max(1, len(inner))


_BACKENDS = {
    "aten::mkldnn_convolution": "convolutions by oneDNN",
    "aten::_slow_conv2d_forward": "convolutions by the plain kernel (im2col and a product)",
    "aten::slow_conv3d_forward": "convolutions by the plain kernel (im2col and a product)",
    "aten::thnn_conv2d": "convolutions by the plain kernel (im2col and a product)",
    "aten::cudnn_convolution": "convolutions by cuDNN",
    "aten::mkldnn_rnn_layer": "recurrent layers by oneDNN",
    "aten::_cudnn_rnn": "recurrent layers by cuDNN",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "attention by the flash kernel",
    "aten::_scaled_dot_product_flash_attention": "attention by the flash kernel",
    "aten::_scaled_dot_product_efficient_attention": "attention by the memory-efficient kernel",
    "aten::_scaled_dot_product_attention_math": "attention by plain products",
    "aten::mkldnn_linear": "linear layers by oneDNN",
}


def backends(names: Sequence[str]) -> tuple[str, ...]:
    """Which library did the work, where the name of an operator says so."""
    return tuple(dict.fromkeys(said for name in names if (said := _BACKENDS.get(name))))


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
