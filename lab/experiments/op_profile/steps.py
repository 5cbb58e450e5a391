"""Parts of a step that add up to the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from lab.contract import Fault
from lab.instruments.profiling.places import CallMarks
from lab.instruments.profiling.python_time import FrameSampler
from lab.instruments.profiling.tree import Tree
from lab.records.profiling import Ceilings, Dispatch, Iteration, StepParts, Trial
from lab.workloads.profiled_step import PARTS

LOADING = "data_loading"
_LOADER = "enumerate(DataLoader)"
"""How torch names the range around fetching a batch."""
ROOT = "step"
"""The range around one step: 100 %, not an operator."""


@dataclass
class Measured:
    """What the runs gave, before it is put into tables."""

    iterations: list[Iteration] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    """One for each profiled step."""
    marked: tuple[Tree, CallMarks] | None = None
    sampled: tuple[Tree, FrameSampler] | None = None
    """Steps whose frames were sampled."""
    dispatch: list[Dispatch] = field(default_factory=list)
    trials: tuple[Trial, ...] = ()
    ceilings: Ceilings | None = None
    cut: str = ""
    compile_s: float | None = None
    fault: Fault | None = None


def clocked_step(seconds: Mapping[str, float], total_s: float) -> StepParts:
    """From the plain clock."""
    return _step({part: seconds.get(part) for part in PARTS}, total_s)


def profiled_step(tree: Tree) -> StepParts:
    """From the ranges of the profile, in whole nanoseconds until the end. A batch that the forward fetches from a DataLoader
    is data loading."""
    root, events = root_row(tree), tree.events
    spent: dict[str, int] = {}
    for row, parent in enumerate(tree.parent):
        if parent == root and events.kind[row] == "range" and events.name[row] in PARTS:
            spent[events.name[row]] = spent.get(events.name[row], 0) + events.duration_ns[row]
    for row in loader_rows(tree):
        part = events.name[_part_of(tree, row)]
        if part in spent and part != LOADING:
            spent[part] -= events.duration_ns[row]
        if part != LOADING:
            spent[LOADING] = spent.get(LOADING, 0) + events.duration_ns[row]
    return _step({part: spent[part] / 1e9 if part in spent else None for part in PARTS}, events.duration_ns[root] / 1e9)


def loader_rows(tree: Tree) -> list[int]:
    """Ranges of torch's DataLoader on the step's thread, outermost only."""
    events, root = tree.events, root_row(tree)
    found: list[int] = []
    inside: set[int] = set()
    for row, name in enumerate(events.name):
        if tree.parent[row] in inside:
            inside.add(row)
        elif name.startswith(_LOADER) and events.kind[row] == "range" and events.thread[row] == events.thread[root]:
            found.append(row)
            inside.add(row)
    return found


def _part_of(tree: Tree, row: int) -> int:
    """The part of the step around a row; the row itself outside the step."""
    root, above = root_row(tree), row
    while tree.parent[above] not in (root, -1):
        above = tree.parent[above]
    return above


def mean_step(steps: Sequence[StepParts]) -> StepParts:
    """Part by part, so that tables over all steps add up to it."""
    columns = {name: [getattr(step, name) for step in steps] for name in (f.name for f in fields(StepParts))}
    means = {
        name: None if all(v is None for v in values) else sum(v or 0.0 for v in values) / len(steps)
        for name, values in columns.items()
    }
    return StepParts(**means)  # pyright: ignore[reportArgumentType] - None only where a step has None


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


def leaves(tree: Tree) -> list[int]:
    """Operators that call no other."""
    rows = [row for row in step_rows(tree) if tree.events.kind[row] == "op"]
    callers = {tree.parent[row] for row in rows}
    return [row for row in rows if row not in callers]


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
