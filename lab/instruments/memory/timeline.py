"""From spans to rows: one instant an operation, the peak exact, and who owns what at an instant."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from lab.instruments.memory.categories import Span, spans
from lab.instruments.memory.ledger import Storage
from lab.instruments.memory.tracker import MemoryTrack, Operation
from lab.records.memory import CATEGORIES, Lives, Owner, Peak, Storages, Timeline

MOST_ROWS = 5_000
OWNERS = 6
_START = Operation("start", "start", "", 0, None)


@dataclass
class Reading:
    """A finished track, read. ``states[e]``: bytes per category after event e."""

    operations: list[Operation]
    storages: list[Storage]
    spans: list[Span]
    states: list[list[int]]
    totals: list[int]
    instants: list[tuple[int, int]]
    """(operation, event) a row: the event after which most was alive while that operation ran."""

    def categories(self, event: int) -> dict[str, int]:
        """Bytes per category after an event."""
        return dict(zip(CATEGORIES, self.states[event], strict=True)) if self.states else dict.fromkeys(CATEGORIES, 0)

    def operation(self, number: int) -> Operation:
        return self.operations[number] if number >= 0 else _START


def read(track: MemoryTrack, device: str = "cpu") -> Reading:
    """What a track saw on one kind of device."""
    ledger = track.ledger
    found = spans(track, device)
    changes: list[list[tuple[int, int]]] = [[] for _ in range(len(ledger.events) + 1)]
    for span in found:
        changes[span.start].append((span.category, span.bytes))
        changes[span.end].append((span.category, -span.bytes))
    states, now = [], [0] * len(CATEGORIES)
    for change in changes[:-1]:
        for category, size in change:
            now[category] += size
        states.append(now.copy())
    totals = [sum(state) for state in states]
    instants = _instants([event.op for event in ledger.events], totals, len(track.operations))
    return Reading(track.operations, ledger.storages, found, states, totals, instants)


def _instants(op_of_event: list[int], totals: list[int], operations: int) -> list[tuple[int, int]]:
    """For each operation the event with the largest total while it ran, the state that it found included."""
    found, position = [], 0
    for op in range(-1, operations):
        best = max(position - 1, 0)
        while position < len(op_of_event) and op_of_event[position] <= op:
            # before the first operation storages are being registered: only the last state counts
            best = position if op < 0 or totals[position] > totals[best] else best
            position += 1
        found.append((op, best))
    return found if totals else []


def seen_bytes(track: MemoryTrack, device: str = "cpu") -> list[int]:
    """Most bytes that the dispatcher saw alive while each operation ran, the state before the first one included.

    For a track whose ledger holds nothing else yet.
    """
    now, totals, sizes = 0, [], {}
    for event in track.ledger.events:
        if track.ledger.storages[event.storage].device == device and event.kind in ("born", "resized", "died"):
            now += event.value - sizes.get(event.storage, 0)
            sizes[event.storage] = event.value
        totals.append(now)
    return [totals[event] for _, event in _instants([e.op for e in track.ledger.events], totals, len(track.operations))]


def thinned(reading: Reading, most: int = MOST_ROWS) -> list[tuple[int, int]]:
    """At most ``most`` instants: the largest of each bucket, so the peak stays exact."""
    instants = reading.instants
    if len(instants) <= most:
        return instants
    bounds = [round(i * len(instants) / most) for i in range(most + 1)]
    return [max(instants[a:b], key=lambda row: reading.totals[row[1]]) for a, b in pairwise(bounds)]


def timeline(reading: Reading, rows: list[tuple[int, int]]) -> Timeline:
    """The rows as columns."""
    operations = [reading.operation(op) for op, _ in rows]
    states = [reading.states[event] for _, event in rows]
    return Timeline(
        tuple(op for op, _ in rows),
        tuple(o.name for o in operations),
        tuple(o.phase for o in operations),
        tuple(o.module for o in operations),
        tuple(o.step for o in operations),
        tuple(o.line for o in operations),
        *(tuple(state[i] for state in states) for i in range(len(CATEGORIES))),
    )


def lives(reading: Reading, rows: list[tuple[int, int]]) -> tuple[Lives, Storages]:
    """What is alive at each row, as intervals of rows."""
    events = [event for _, event in rows]
    shown, numbers = [], {}
    for span in reading.spans:
        # a state after event e belongs to spans with start <= e < end
        first, end = bisect_left(events, span.start), bisect_left(events, span.end)
        if first < end:
            shown.append((first, end, span.category, span.bytes, numbers.setdefault(span.storage, len(numbers))))
    storages = [reading.storages[number] for number in numbers]
    return Lives(*_columns(shown, 5)), Storages(
        *_columns([(s.op_name, s.phase, s.module, s.name, str(list(s.shape)), s.dtype, s.line) for s in storages], 7)
    )


def _columns(rows: list[tuple], width: int) -> list[tuple]:
    return [tuple(row[i] for row in rows) for i in range(width)]


def peak(reading: Reading, rows: list[tuple[int, int]]) -> Peak:
    """The first instant at which most was alive."""
    row = max(range(len(rows)), key=lambda i: reading.totals[rows[i][1]])
    op, event = rows[row]
    operation = reading.operation(op)
    return Peak(
        reading.totals[event],
        op,
        row,
        operation.name,
        operation.phase,
        operation.module,
        operation.step,
        reading.categories(event),
        owners(reading, event),
    )


def owners(reading: Reading, event: int, most: int = OWNERS) -> tuple[Owner, ...]:
    """Who holds memory after ``event``, by category, module and operation, the largest first."""
    groups: dict[tuple[str, str, str], list[Span]] = defaultdict(list)
    for span in reading.spans:
        if span.start <= event < span.end:
            storage = reading.storages[span.storage]
            op = "" if storage.static else storage.op_name
            groups[CATEGORIES[span.category], owner_module(storage), op].append(span)
    found = []
    for (category, module, op), members in groups.items():
        largest = max(members, key=lambda span: span.bytes)
        name = reading.storages[largest.storage].name
        found.append(Owner(category, module, op, name, sum(s.bytes for s in members), len(members)))
    return tuple(sorted(found, key=lambda owner: -owner.bytes)[:most])


def owner_module(storage: Storage) -> str:
    """The module a storage belongs to: for a parameter or buffer the one that registered it."""
    return storage.name.rpartition(".")[0] if storage.static in ("parameters", "buffers") else storage.module
