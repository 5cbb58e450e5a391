"""Requested, allocated, reserved: the recorded events replayed through the rules of CUDA's caching allocator."""

from __future__ import annotations

from collections.abc import Sequence

from lab.experiments.memory_timeline.tracking import Tracked
from lab.instruments.memory.caching import MIB, CachingAllocator, OutOfMemory
from lab.instruments.memory.ledger import Ledger
from lab.records.memory import AllocatorModel

_POINTS = 400
_STEP = 2 * MIB
Event = tuple[int, int, int]
"""(operation, storage, bytes), bytes 0 for the end of a storage."""


def allocator_models(tracked: Tracked) -> tuple[AllocatorModel, ...]:
    """With fixed and with expandable segments."""
    events = requests(tracked.book.ledger)
    return tuple(model(events, expandable) for expandable in (False, True)) if events else ()


def requests(ledger: Ledger) -> list[Event]:
    """What a program asks an allocator for; a storage that changes its size is another one."""
    found = []
    for event in ledger.events:
        if event.kind in ("died", "resized"):
            found.append((event.op, event.storage, 0))
        if event.kind in ("born", "resized") and event.value:
            found.append((event.op, event.storage, event.value))
    return found


def replay(
    events: Sequence[Event], expandable: bool, cap: int | None = None
) -> tuple[CachingAllocator, list[tuple[int, int, int, int]]]:
    """(allocator at the end, (operation, requested, allocated, reserved) after each event)."""
    allocator, rows = CachingAllocator(cap, expandable), []
    known: set[int] = set()
    for op, storage, size in events:
        if size and not allocator.take(storage, size):
            break
        if size:
            known.add(storage)
        elif storage in known:
            known.remove(storage)
            allocator.give(storage)
        rows.append((op, allocator.requested, allocator.allocated, allocator.reserved))
    return allocator, rows


def model(events: Sequence[Event], expandable: bool) -> AllocatorModel:
    """Peaks, curves, and the smallest device that serves every request."""
    allocator, rows = replay(events, expandable)
    _, requested, allocated, reserved = zip(*rows, strict=True)
    most = max(rows, key=lambda row: row[2])
    needed, failed = smallest_device(events, expandable, max(allocated), max(reserved))
    size = max(1, -(-len(rows) // _POINTS))
    shown = [max(rows[at : at + size], key=lambda row: (row[3], row[2])) for at in range(0, len(rows), size)]
    return AllocatorModel(
        expandable,
        *(tuple(row[i] for row in shown) for i in range(4)),
        requested_peak_bytes=max(requested),
        allocated_peak_bytes=max(allocated),
        reserved_peak_bytes=max(reserved),
        segments=len(allocator.segments),
        unused_bytes=most[3] - most[2],
        needed_bytes=needed,
        failed_request_bytes=failed.requested if failed else 0,
        failed_allocated_bytes=failed.allocated if failed else 0,
        failed_reserved_bytes=failed.reserved if failed else 0,
        failed_free_bytes=needed - _STEP - failed.allocated if failed else 0,
    )


def smallest_device(events: Sequence[Event], expandable: bool, low: int, high: int) -> tuple[int, OutOfMemory | None]:
    """(bytes of the smallest device that serves all, what fails on one that is a step smaller)."""
    below, enough = low // _STEP - 1, -(-high // _STEP)
    failed = None
    while enough - below > 1:
        middle = (below + enough) // 2
        allocator, _ = replay(events, expandable, middle * _STEP)
        if allocator.failed:
            below, failed = middle, allocator.failed
        else:
            enough = middle
    if failed is None:
        failed = replay(events, expandable, below * _STEP)[0].failed
    return enough * _STEP, failed
