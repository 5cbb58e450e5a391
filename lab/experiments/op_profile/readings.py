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


def fastest_s(result: Result, part: str) -> float:
    """Least time of a part over the profiled steps: what else the machine does only makes it longer. NaN when never measured.

    ``part`` is a field of ``StepParts``.
    """
    steps = [i.parts for i in result.iterations if i.kind == "profiled" and i.parts]
    found = [seconds for step in steps if (seconds := getattr(step, part)) is not None]
    return min(found, default=math.nan)


def part_share(result: Result, part: str) -> float:
    """Share of the step, fastest against fastest."""
    return fastest_s(result, part) / fastest_s(result, "total_s")


def backward_ratio(result: Result) -> float:
    """Backward against forward."""
    return fastest_s(result, "backward_s") / fastest_s(result, "forward_s")


def largest_part(result: Result) -> str:
    """Name of the part of the step that takes longest."""
    parts = ("data_loading", "copy_to_device", "forward", "backward", "optimizer", "synchronisation", "rest")
    found = {part: fastest_s(result, f"{part}_s") for part in parts}
    return max((part for part in parts if found[part] == found[part]), key=lambda part: found[part])


def step_flops(result: Result) -> float:
    """Counted floating-point operations of one step."""
    counted = [n for n in result.calls.flops if n is not None]
    return sum(counted) / result.profiled_steps if result.profiled_steps else math.nan


def arithmetic_share(result: Result) -> float:
    """What the bare step reaches of the arithmetic that this device can do."""
    if not (result.overhead and result.ceilings):
        return math.nan
    return step_flops(result) / result.overhead.bare_s.min / result.ceilings.flops_per_s


def totals_over_step(result: Result) -> float:
    """Sum of the totals of all operators against the step."""
    if result.step is None:
        return math.nan
    totals = sum(t for t, ours in zip(result.calls.total_s, result.calls.is_operator, strict=True) if ours)
    return totals / sum(i.total_s for i in result.iterations if i.kind == "profiled")


def busy_share(result: Result) -> float:
    """Share of the profiled steps inside operators, on a device inside kernels."""
    whole = sum(i.total_s for i in result.iterations if i.kind == "profiled")
    if not whole:
        return math.nan
    if result.device_busy_s is not None:
        return result.device_busy_s / whole
    return sum(s for s, ours in zip(result.calls.self_s, result.calls.is_operator, strict=True) if ours) / whole


def short_name(name: str) -> str:
    """``aten::mm`` as ``mm``; the engine's wrapper of a backward node as the node."""
    return name.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.step is None or result.overhead is None:
        return {}
    parts = {name: value for name, value in asdict(result.step).items() if value is not None and name != "total_s"}
    return {"bare step_s": result.overhead.bare_s.median, **parts, "events a step": result.overhead.events_per_step}
