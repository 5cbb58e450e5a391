"""Parts of a step that add up to the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.contract import Fault
from lab.instruments.profiling.places import CallMarks
from lab.instruments.profiling.tree import Tree
from lab.records.profiling import Ceilings, Iteration, StepParts
from lab.workloads.profiled_step import PARTS

ROOT = "step"
"""The range around one step: 100 %, not an operator."""


@dataclass
class Measured:
    """What the runs gave, before it is put into tables."""

    iterations: list[Iteration] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    """One for each profiled step."""
    marked: tuple[Tree, CallMarks] | None = None
    ceilings: Ceilings | None = None
    cut: str = ""
    compile_s: float | None = None
    fault: Fault | None = None


def clocked_step(seconds: Mapping[str, float], total_s: float) -> StepParts:
    """From the plain clock."""
    return _step({part: seconds.get(part) for part in PARTS}, total_s)


def profiled_step(tree: Tree) -> StepParts:
    """From the ranges of the profile, in whole nanoseconds until the end."""
    root, events = root_row(tree), tree.events
    spent: dict[str, int] = {}
    for row, parent in enumerate(tree.parent):
        if parent == root and events.kind[row] == "range" and events.name[row] in PARTS:
            spent[events.name[row]] = spent.get(events.name[row], 0) + events.duration_ns[row]
    return _step({part: spent[part] / 1e9 if part in spent else None for part in PARTS}, events.duration_ns[root] / 1e9)


class ProfileLostError(RuntimeError):
    """The events of a step are gone."""


def root_row(tree: Tree) -> int:
    """The range around the step. Raises ProfileLostError when something inside took the profiler away."""
    for row, name in enumerate(tree.events.name):
        if name == ROOT and tree.events.kind[row] == "range":
            return row
    raise ProfileLostError(
        "The profile of the step is empty: a profiler that was started inside the step took it over."
    )


def step_rows(tree: Tree) -> list[int]:
    """Rows that count: the step and all inside it, and what other threads did meanwhile. Parents come first."""
    root, events = root_row(tree), tree.events
    inside = [False] * len(tree.parent)
    for row, parent in enumerate(tree.parent):
        if events.kind[row] in ("op", "range", "runtime"):
            elsewhere = parent < 0 and events.thread[row] != events.thread[root]
            inside[row] = row == root or elsewhere or (parent >= 0 and inside[parent])
    return [row for row, counts in enumerate(inside) if counts and tree.stands_for[row] == row]


def _step(parts: Mapping[str, float | None], total_s: float) -> StepParts:
    rest_s = total_s - sum(value for value in parts.values() if value is not None)
    return StepParts(
        data_loading_s=parts["data_loading"],
        copy_to_device_s=parts["copy_to_device"],
        forward_s=parts["forward"] or 0.0,
        backward_s=parts["backward"] or 0.0,
        optimizer_s=parts["optimizer"] or 0.0,
        synchronisation_s=parts["synchronisation"] or 0.0,
        rest_s=rest_s,
        total_s=total_s,
    )
