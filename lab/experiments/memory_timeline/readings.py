"""Single numbers and short answers read from a result, for the lessons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.experiments.memory_timeline.schema import Result
from lab.experiments.memory_timeline.words import category_text, phase_text
from lab.records.memory import Run

Knobs = Mapping[str, Any]


def peak_bytes(result: Result) -> float:
    """The headline number, which the script prints: of the allocator in a run without the instrument, where there was one."""
    return float(result.bare_peak_bytes or result.peak.bytes)


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    parts = {f"{category_text(name)}_bytes": size for name, size in result.peak.categories.items() if size}
    found: dict[str, float] = {"peak_bytes": result.peak.bytes, **parts}
    if result.step_s:
        found["step_s"] = result.step_s.median
    return found | {"recomputed operations": result.recomputed_ops}


def growth_bytes(result: Result) -> float:
    """What the last step left behind."""
    return float(result.step_ends[-1] - result.step_ends[-2])


def unallocated_bytes(result: Result) -> float:
    """Reserved by PyTorch and not allocated, as the pasted message says."""
    assert result.message is not None
    return float(next(n.bytes for n in result.message.numbers if n.name == "reserved and not allocated"))


def alive_under_cap(result: Result) -> float:
    """Most that was alive while everything still fitted under the cap."""
    assert result.oom is not None
    return float(result.oom.alive_bytes)


def largest_category(result: Result) -> str:
    """The category with most bytes at the peak."""
    parts = result.peak.categories
    return category_text(max(parts, key=lambda name: parts[name]))


def peak_phase(result: Result) -> str:
    """Where the peak falls."""
    return phase_text(result.peak.phase)


def against(result: Result, before: Knobs, after: Knobs) -> str:
    """How the peak changes from one setting to the other: falls to less than two thirds, falls, stays, rises."""
    old, new = (run.peak_bytes if (run := run_with(result, **knobs)) else None for knobs in (before, after))
    assert old
    assert new is not None
    if new < 2 * old / 3:
        return "it falls by more than a third"
    if new < 0.98 * old:
        return "it falls by less than a third"
    return "it stays" if new <= old else "it rises"


def lowest(result: Result, answers: Mapping[str, Knobs]) -> str:
    """Which of the ``answers``, each with the knobs of its setting, has the lowest peak."""
    ran = [run for run in result.runs if run.peak_bytes is not None]
    best = min(ran, key=lambda run: run.peak_bytes or 0)
    return next(answer for answer, knobs in answers.items() if best.knobs == knobs)


def run_with(result: Result, **knobs: Any) -> Run | None:
    """The first setting of the comparison that was made with these values."""
    return next((run for run in result.runs if knobs.items() <= run.knobs.items()), None)
