"""Single numbers and short answers read from a result, for the lessons."""

from __future__ import annotations

from lab.experiments.memory_timeline.schema import Result
from lab.experiments.memory_timeline.words import category_text, phase_text
from lab.records.memory import Run


def peak_bytes(result: Result) -> float:
    """The headline number."""
    return float(result.peak.bytes)


def growth_bytes(result: Result) -> float:
    """What the last step left behind."""
    return float(result.step_ends[-1] - result.step_ends[-2])


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


def against(result: Result, before: str, after: str) -> str:
    """How the peak changes from one setting to the other: falls to less than two thirds, falls, stays, rises."""
    old, new = setting(result, before).peak_bytes, setting(result, after).peak_bytes
    assert old
    assert new is not None
    if new < 2 * old / 3:
        return "it falls by more than a third"
    if new < 0.98 * old:
        return "it falls by less than a third"
    return "it stays" if new <= old else "it rises"


def lowest(result: Result) -> str:
    """Name of the setting with the lowest peak."""
    ran = [run for run in result.runs if run.peak_bytes is not None]
    return min(ran, key=lambda run: run.peak_bytes or 0).setting


def setting(result: Result, name: str) -> Run:
    """One setting of the comparison."""
    return next(run for run in result.runs if run.setting == name)
