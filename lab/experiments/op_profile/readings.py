"""Single numbers read from a result, for findings and lessons."""

from __future__ import annotations

import math
from dataclasses import asdict

from lab.experiments.op_profile.schema import Result


def reading(result: Result, name: str, program: str) -> float:
    """A number that the trap of ``result`` gave; NaN when it gave none."""
    found = [r.value for r in result.trap.readings if (r.name, r.program) == (name, program)] if result.trap else []
    return found[0] if found and isinstance(found[0], float) else math.nan


def first_ratio(result: Result) -> float:
    """First step against the median of the bare ones."""
    first = next((i.total_s for i in result.iterations if i.kind == "first"), math.nan)
    return first / result.overhead.bare_s.median if result.overhead else math.nan


def profiled_s(result: Result) -> float:
    """All profiled steps together: what the tables add up to."""
    return sum(i.total_s for i in result.iterations if i.kind == "profiled")


def part_share(result: Result, part: str) -> float:
    """Share of the step; ``part`` is a field of ``StepParts``. NaN where it was not measured."""
    seconds = getattr(result.step, part, None)
    return math.nan if seconds is None or result.step is None else seconds / result.step.total_s


def backward_ratio(result: Result) -> float:
    """Backward against forward."""
    return part_share(result, "backward_s") / part_share(result, "forward_s")


def largest_part(result: Result) -> str:
    """Name of the part of the step that takes longest."""
    parts = ("data_loading", "copy_to_device", "forward", "backward", "optimizer", "synchronisation", "rest")
    found = {part: part_share(result, f"{part}_s") for part in parts}
    return max((part for part in parts if found[part] == found[part]), key=lambda part: found[part])


def step_flops(result: Result) -> float:
    """Counted floating-point operations of one step."""
    counted = [n for n in result.calls.flops if n is not None]
    return sum(counted) / result.profiled_steps if result.profiled_steps else math.nan


def arithmetic_share(result: Result) -> float:
    """What the bare step reaches of the arithmetic that this device can do."""
    if not (result.overhead and result.ceilings):
        return math.nan
    return step_flops(result) / result.overhead.bare_s.median / result.ceilings.flops_per_s


def totals_over_step(result: Result) -> float:
    """Sum of the totals of all operators against the step."""
    if result.step is None:
        return math.nan
    totals = sum(t for t, ours in zip(result.calls.total_s, result.calls.is_operator, strict=True) if ours)
    return totals / profiled_s(result)


def busy_share(result: Result) -> float:
    """Share of the profiled steps inside operators, on a device inside kernels."""
    whole = profiled_s(result)
    if not whole:
        return math.nan
    if result.device_busy_s is not None:
        return result.device_busy_s / whole
    return sum(s for s, ours in zip(result.calls.self_s, result.calls.is_operator, strict=True) if ours) / whole


def line_of(result: Result, at: int) -> int | None:
    """A finding names lines of the visitor's program only."""
    return result.calls.line[at] if result.lines_of == "program" else None


def short_name(name: str) -> str:
    """``aten::mm`` as ``mm``; the engine's wrapper of a backward node as the node."""
    return name.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.step is None or result.overhead is None:
        return {}
    parts = {name: value for name, value in asdict(result.step).items() if value is not None and name != "total_s"}
    return {"bare step_s": result.overhead.bare_s.median, **parts, "events a step": result.overhead.events_per_step}
