"""Memory that the dispatcher does not see, on the CPU: what the profiler's allocation events hold beyond the track's.

Workspaces inside one operator, oneDNN's packed weights, random-number states. One run is tracked and profiled at once;
a birth that the track knows is matched with the allocation at the same address, and what remains is unseen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

from lab.instruments.memory.ledger import BEFORE, Storage
from lab.instruments.memory.tracker import MemoryTrack
from lab.torch_private import allocations

_APART = 8
"""A birth this many storages from the newest one is of another tenant of the same address."""


def profiled(work: Callable[[], MemoryTrack]) -> tuple[MemoryTrack, list[tuple[int, int]]]:
    """Do the tracked ``work`` under the profiler; returns its track and (address, signed bytes) in order of time.

    Releases of what was allocated before are left out. A process may have one profiler at a time: two crash it.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as session:
        track = work()
    known, events = set(), []
    for address, size in allocations(session):
        if size > 0 or address in known:
            events.append((address, size))
            known.symmetric_difference_update({address})
    return track, events


def unseen_by_operation(track: MemoryTrack, events: list[tuple[int, int]]) -> dict[int, int]:
    """operation -> the most unseen bytes alive between its first allocation and the next operation's.

    ``track`` with addresses. Operations without an entry had none. An unseen allocation belongs to the operation whose
    result was allocated last before it.
    """
    births: dict[tuple[int, int], list[Storage]] = defaultdict(list)
    before = {(s.address, s.bytes) for s in track.ledger.storages if s.op_name == BEFORE}
    for storage in reversed(track.ledger.storages):
        if storage.op_name != BEFORE:
            births[storage.address, storage.bytes].append(storage)
    sizes: dict[int, int] = {}  # of what is unseen and alive, by address
    alive, op, newest, found = 0, -1, len(before), defaultdict(int)
    for address, size in events:
        waiting = births[address, size]
        while waiting and waiting[-1].number < newest - _APART:
            waiting.pop()
        if size < 0:
            alive -= sizes.pop(address, 0)
        elif waiting and waiting[-1].number <= newest + _APART:
            born = waiting.pop()
            op, newest = max(op, born.op), max(newest, born.number)
        elif (address, size) not in before:
            sizes[address] = size
            alive += size
        found[op] = max(found[op], alive)
    return {number: size for number, size in found.items() if size}
