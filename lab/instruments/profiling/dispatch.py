"""What calling an operator costs on this host before it does any work: measured on one element, in the same run as the step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch

from lab.instruments.profiling.cost import WITH_COST, flops, moved_bytes
from lab.instruments.profiling.session import OpSession
from lab.instruments.profiling.step_clock import timed
from lab.instruments.profiling.tree import Tree, build_tree
from lab.records.profiling import Ceilings, Dispatch

_CALLS = 60
SHORT = 6
"""An operator with less than so many times the self time of ``x + 1`` is mostly dispatch: those with more inputs cost some
four times as much on one element."""
_ODD = 3
_GAP = 25
"""Python between two operators for longer than so many calls is work of its own, not the way from one call to the next."""


def measure_dispatch() -> Dispatch:
    """Takes a few milliseconds. Always on the CPU: there the call is made, whatever the device."""
    x = torch.ones(1, requires_grad=True)

    def calls() -> None:
        for _ in range(_CALLS):
            torch.add(x, 1)

    calls()
    session = OpSession("cpu")
    with session:
        calls()
    events = session.events
    tree = build_tree(events)
    own = [tree.self_ns[row] for row, name in enumerate(events.name) if name == "aten::add"]
    return Dispatch(timed(calls, "cpu") / _CALLS, median(own) / 1e9)


def least(costs: Sequence[Dispatch]) -> Dispatch:
    """What else the machine does only makes a call longer."""
    return Dispatch(min(cost.call_s for cost in costs), min(cost.profiled_s for cost in costs))


def usual_ns(trees: Sequence[Tree], cost: Dispatch, ceilings: Ceilings | None = None) -> list[list[float]]:
    """Of each row: what operations with its name and shapes take themselves, -1 for what is none.

    It is the lower quartile of their self times: a call that was interrupted takes milliseconds where its like take
    microseconds. Where all were, the shapes tell: with little arithmetic and traffic an operation is dispatch.
    """
    known: dict[tuple[str, str], tuple[list[int], float | None]] = {}
    groups: list[list[list[int] | None]] = []
    for tree in trees:
        events, own = tree.events, []
        for row, kind in enumerate(events.kind):
            group = None
            if kind == "op" and tree.stands_for[row] == row:
                key = events.name[row], str(events.shapes[row])
                if key not in known:
                    known[key] = [], _least_ns(tree, row, ceilings)
                group = known[key][0]
                group.append(tree.self_ns[row])
            own.append(group)
        groups.append(own)
    limit = SHORT * cost.profiled_s * 1e9
    usual = {id(group): _usual(group, least, limit) for group, least in known.values()}
    return [[usual.get(id(group), -1.0) for group in own] for own in groups]


def _usual(own_ns: Sequence[int], least_ns: float | None, limit_ns: float) -> float:
    measured = float(sorted(own_ns)[(len(own_ns) - 1) // 4])
    if least_ns is None:
        return measured
    return min(measured, limit_ns - 1) if 10 * least_ns < limit_ns else min(measured, 100 * least_ns)


def _least_ns(tree: Tree, row: int, ceilings: Ceilings | None) -> float | None:
    """What its arithmetic and traffic take at the ceilings of this device; None where the shapes do not tell."""
    events = tree.events
    name, shapes = events.name[row], events.shapes[row]
    if ceilings is None or name not in WITH_COST:
        return None
    work = flops(name, shapes, events.arguments[row]), moved_bytes(name, shapes, events.dtypes[row])
    if work == (None, None):
        return None
    return ((work[0] or 0) / ceilings.flops_per_s + (work[1] or 0) / ceilings.bytes_per_s) * 1e9


def is_short(usual_ns: float, cost: Dispatch) -> bool:
    """An operation that is mostly dispatch."""
    return 0 <= usual_ns < SHORT * cost.profiled_s * 1e9


def lost_ns(tree: Tree, usual: Sequence[float]) -> int:
    """Time in operations beyond three times what their like take: something else had the processor."""
    return sum(max(0, round(own - _ODD * at)) for own, at in zip(tree.self_ns, usual, strict=True) if at >= 0)


def counted_ns(self_ns: int, usual: float) -> float:
    """Self time of an operation without what was lost."""
    return min(self_ns, _ODD * usual)


def long_gap_ns(cost: Dispatch) -> float:
    """Python between two operators that is longer is work of its own."""
    return _GAP * (cost.call_s + cost.profiled_s) * 1e9
