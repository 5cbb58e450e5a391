"""Kernels and copies on the device. The CPU has none: then there is no table, and no zeros."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from lab.instruments.profiling.events import DEVICE
from lab.instruments.profiling.tree import Tree
from lab.records.profiling import Kernels


def kernels(trees: Iterable[Tree]) -> Kernels:
    """One row a kernel and the operator that launched it, longest first."""
    rows: dict[tuple[str, str | None], dict[str, Any]] = {}
    for tree in trees:
        events = tree.events
        for row, kind in enumerate(events.kind):
            if kind in DEVICE:
                operator = events.name[tree.parent[row]] if tree.parent[row] >= 0 else None
                entry = rows.setdefault(
                    (events.name[row], operator), {"calls": 0, "ns": 0, **_launch(events.details[row])}
                )
                entry["calls"] += 1
                entry["ns"] += events.duration_ns[row]
    ordered = sorted(rows.items(), key=lambda item: -item[1]["ns"])
    return Kernels(
        name=tuple(name for (name, _), _ in ordered),
        calls=tuple(entry["calls"] for _, entry in ordered),
        total_s=tuple(entry["ns"] / 1e9 for _, entry in ordered),
        operator=tuple(operator for (_, operator), _ in ordered),
        occupancy=tuple(entry["occupancy"] for _, entry in ordered),
        grid=tuple(entry["grid"] for _, entry in ordered),
        block=tuple(entry["block"] for _, entry in ordered),
    )


def busy_s(trees: Iterable[Tree]) -> float:
    """Time in which at least one kernel or copy ran: overlapping ones count once."""
    total = 0
    for tree in trees:
        events = tree.events
        spans = [
            (events.start_ns[row], events.start_ns[row] + events.duration_ns[row])
            for row, kind in enumerate(events.kind)
            if kind in DEVICE
        ]
        total += covered_ns(spans)
    return total / 1e9


def covered_ns(spans: Sequence[tuple[int, int]]) -> int:
    """Length of the union of intervals."""
    total, end = 0, None
    for start, stop in sorted(spans):
        if end is None or start > end:
            total, end = total + stop - start, stop
        elif stop > end:
            total, end = total + stop - end, stop
    return total


def _launch(details: str) -> dict[str, Any]:
    """Kineto's members of a kernel: ``"grid": [128, 1, 1], "est. achieved occupancy %": 50``."""
    try:
        members = json.loads(f"{{{details}}}")
    except json.JSONDecodeError:
        members = {}
    percent = members.get("est. achieved occupancy %")
    shape = {name: " × ".join(map(str, members[name])) if members.get(name) else None for name in ("grid", "block")}
    return {"occupancy": percent / 100 if isinstance(percent, (int, float)) else None, **shape}
