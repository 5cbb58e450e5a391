"""The events of the profiled steps as lanes of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lab.experiments.op_profile.steps import root_row, step_rows
from lab.instruments.profiling.events import DEVICE, Kind
from lab.instruments.profiling.tree import Tree
from lab.records.profiling import Timeline

MOST = 20_000
"""Boxes that a browser pans smoothly."""
INSTANTS = 1_500
"""Points of the memory curve."""


class _Row(NamedTuple):
    lane: str
    start_ns: int
    duration_ns: int
    depth: int
    name: str
    shapes: str
    kind: Kind


def timeline(trees: Sequence[Tree]) -> Timeline:
    """Whole steps while they fit, at least the first, end to end: the steps without the profiler between are left out."""
    rows: list[_Row] = []
    curve: list[tuple[int, int]] = []
    offset_ns, steps = 0, 0
    for tree in trees:
        found = _rows(tree, offset_ns)
        if steps and len(rows) + len(found) > MOST:
            break
        rows += found[:MOST]
        curve += _memory(tree, offset_ns, curve[-1][1] if curve else 0)
        steps += 1
        offset_ns += tree.events.duration_ns[root_row(tree)]
    lanes = sorted({row.lane for row in rows})
    texts = dict.fromkeys(text for row in rows for text in (row.name, row.shapes) if text)
    names = {text: position for position, text in enumerate(texts)}
    rows.sort(key=lambda row: (row.lane, row.start_ns, row.depth))
    return Timeline(
        lanes=tuple(lanes),
        names=tuple(names),
        lane=tuple(lanes.index(row.lane) for row in rows),
        name=tuple(names[row.name] for row in rows),
        kind=tuple(row.kind for row in rows),  # pyright: ignore[reportArgumentType] - never a memory event
        depth=tuple(row.depth for row in rows),
        start_s=tuple(row.start_ns / 1e9 for row in rows),
        duration_s=tuple(row.duration_ns / 1e9 for row in rows),
        shapes=tuple(names.get(row.shapes, -1) for row in rows),
        memory_s=tuple(ns / 1e9 for ns, _ in thinned(curve)),
        memory_bytes=tuple(size for _, size in thinned(curve)),
        steps=steps,
        events=sum(len(_rows(tree, 0)) for tree in trees),
    )


def _memory(tree: Tree, offset_ns: int, level: int) -> list[tuple[int, int]]:
    """(time, bytes) after each allocation and each freeing inside the step."""
    events, root = tree.events, root_row(tree)
    start, end = events.start_ns[root], events.start_ns[root] + events.duration_ns[root]
    changes = sorted(
        (events.start_ns[row], events.bytes[row])
        for row, kind in enumerate(events.kind)
        if kind == "memory" and start <= events.start_ns[row] < end
    )
    found = []
    for at, size in changes:
        level += size
        found.append((at - start + offset_ns, level))
    return found


def thinned(curve: Sequence[tuple[int, int]], most: int = INSTANTS) -> list[tuple[int, int]]:
    """At most ``most`` points, with the lowest and the highest of each bucket."""
    if len(curve) <= most:
        return list(curve)
    buckets = most // 2
    kept: set[int] = set()
    for bucket in range(buckets):
        span = range(bucket * len(curve) // buckets, (bucket + 1) * len(curve) // buckets)
        kept |= {min(span, key=lambda at: curve[at][1]), max(span, key=lambda at: curve[at][1])}
    return [curve[at] for at in sorted(kept)]


def _rows(tree: Tree, offset_ns: int) -> list[_Row]:
    """In order of start."""
    events = tree.events
    root = root_row(tree)
    origin = events.start_ns[root] - offset_ns
    threads = {thread: number for number, thread in enumerate(dict.fromkeys([events.thread[root], *events.thread]))}
    depth: dict[int, int] = {}
    rows = []
    for row in step_rows(tree):
        depth[row] = depth.get(tree.parent[row], -1) + 1
        lane = "main thread" if threads[events.thread[row]] == 0 else f"thread {threads[events.thread[row]]}"
        shapes = str(events.shapes[row] or "")
        rows.append(
            _Row(
                lane,
                events.start_ns[row] - origin,
                events.duration_ns[row],
                depth[row],
                events.name[row],
                shapes,
                events.kind[row],
            )
        )
    for row, kind in enumerate(events.kind):
        if kind in DEVICE:
            start = events.start_ns[row] - origin
            rows.append(
                _Row(f"stream {events.thread[row]}", start, events.duration_ns[row], 0, events.name[row], "", kind)
            )
    return sorted(rows, key=lambda row: row.start_ns)
