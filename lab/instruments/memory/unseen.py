"""Memory that the dispatcher does not see, on the CPU: what the allocator's own events hold beyond the track's.

Workspaces inside one operator, oneDNN's packed weights, random-number states. One run is tracked and profiled at once.
Each operation runs inside a range of the profiler, so the nesting of an allocation says which operation asked for it;
a storage that the track knows is the block at its address. What remains is written into the track's ledger as storages
of their own, in the allocator's order: after that the totals are the allocator's at every event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from torch.profiler import ProfilerActivity, profile

from lab.instruments.memory.ledger import BEFORE, Event, Ledger, Storage
from lab.instruments.memory.tracker import BEGIN, END, RANGE, MemoryTrack
from lab.torch_private import Allocation, allocator_events

_NUMBER_BYTES = 16
"""An operator wraps its numbers in tensors of at most this size, and under a dispatch mode once more: left out."""
Recording = tuple[list[Allocation], dict[str, int]]
"""Events of the allocator, and when each range began first (ns)."""


@dataclass(eq=False)
class Block:
    """One allocation, from the event ``first`` to the event ``last``."""

    bytes: int
    first: int
    op: int
    """Operation that ran last when it came; -1 before the track."""
    inside: bool
    """That operation asked for it."""
    where: str
    """Operator around it."""
    last: int | None = None
    last_op: int = -1
    storage: Storage | None = None


def recorded(work: Callable[[], None]) -> Recording:
    """Do ``work`` under the profiler. A process may have one profiler at a time: two crash it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as session:
        work()
    return allocator_events(session)


def add_unseen(track: MemoryTrack, recording: Recording) -> list[int]:
    """Write what only the allocator saw into the ledger of a track with ranges that is over.

    Returns the new position of each event that the ledger had.
    """
    ledger, (allocations, begun) = track.ledger, recording
    blocks = _blocks(allocations, begun[BEGIN], begun[END])
    rows = _placed(ledger, _matched(ledger, blocks))
    unseen = (block for found in blocks.values() for block in found if block.storage is None)
    for block in (block for block in unseen if block.bytes > _NUMBER_BYTES):
        storage = _unseen_storage(len(ledger.storages), block, track)
        ledger.storages.append(storage)
        rows.append((block.first, -1, Event("born", storage.number, block.op, block.bytes)))
        if block.last is not None:
            rows.append((block.last, -1, Event("died", storage.number, block.last_op)))
    rows.sort(key=lambda row: row[0])
    operations = accumulate((event.op for _, _, event in rows), max)  # a birth may have been noticed late
    ledger.events = [
        Event(event.kind, event.storage, op, event.value) for (_, _, event), op in zip(rows, operations, strict=True)
    ]
    places = sorted((before, place) for place, (_, before, _) in enumerate(rows) if before >= 0)
    return list(accumulate((place for _, place in places), max))


def peak_bytes(recording: Recording) -> int:
    """Most that the allocator had given out between ``BEGIN`` and ``END``, of what it gave out while it was recorded."""
    allocations, begun = recording
    alive: dict[int, int] = {}
    now = most = 0
    for event in allocations:
        if event.time_ns > begun[END]:
            break
        if event.time_ns > begun[BEGIN]:
            most = max(most, now)
        if event.bytes > 0:
            alive[event.address] = event.bytes
            now += event.bytes
        else:
            now -= alive.pop(event.address, 0)
    return max(most, now)


def _blocks(allocations: list[Allocation], begin_ns: int, end_ns: int) -> dict[int, list[Block]]:
    """Address -> the blocks there that were alive at some time between, oldest first."""
    found: dict[int, list[Block]] = defaultdict(list)
    alive: dict[int, Block] = {}
    op = -1
    for place, event in enumerate(allocations):
        if event.time_ns > end_ns:
            break
        number = next((int(name.removeprefix(RANGE)) for name in event.inside if name.startswith(RANGE)), None)
        op = op if number is None else max(op, number)
        if event.bytes > 0:
            block = alive[event.address] = Block(event.bytes, place, op, number is not None, _operator(event.inside))
            found[event.address].append(block)
        elif block := alive.pop(event.address, None):
            block.last, block.last_op = place, op
            if event.time_ns < begin_ns:
                found[event.address].remove(block)
    return found


def _operator(inside: tuple[str, ...]) -> str:
    operators = [name for name in inside if name.startswith("aten::")]
    return operators[0].removeprefix("aten::") if operators else inside[-1] if inside else ""


def _matched(ledger: Ledger, blocks: dict[int, list[Block]]) -> dict[int, Block]:
    """Number of a storage -> its block: the last one at its address that its operation asked for, else the last before."""
    found = {}
    for storage in ledger.storages:
        for op, address in storage.addresses:
            there = [block for block in blocks.get(address, ()) if block.op <= op]
            asked = [block for block in there if block.inside and block.op == op]
            for block in (asked or there)[-1:]:
                if block.storage is None:
                    block.storage, found[storage.number] = storage, block
    return found


def _placed(ledger: Ledger, block_of: dict[int, Block]) -> list[tuple[int, int, Event]]:
    """(place among the allocator's events, place in the ledger, event). What is no allocation stays behind the one before."""
    rows, now = [], -1
    for number, event in enumerate(ledger.events):
        block = block_of.get(event.storage)
        place = None
        if block and event.kind == "born":
            place, event = block.first, Event("born", event.storage, block.op, event.value)
        elif block and event.kind == "died":
            place = block.last
        now = max(now, place if place is not None else now)
        rows.append((now if place is None else place, number, event))
    return rows


def _unseen_storage(number: int, block: Block, track: MemoryTrack) -> Storage:
    """What there is to say about a block that no tensor of the dispatcher explains."""
    if block.op < 0:
        return Storage(number, block.bytes, "cpu", (), "", -1, BEFORE, "start", "", 0, None, static="held")
    name, phase, module, step, line = track.operations[block.op]
    named = (name, phase, module) if block.inside else (block.where or "outside operators", phase, "")
    return Storage(number, block.bytes, "cpu", (), "", block.op, *named, step, line, static="workspaces")
