"""From events to categories: which storage counted as what, from when to when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from lab.instruments.memory.ledger import Event, Storage
from lab.instruments.memory.tracker import MemoryTrack, Operation
from lab.records.memory import CATEGORIES


class Span(NamedTuple):
    """``storage`` had ``bytes`` and counted as ``category`` after events ``start`` up to before ``end``."""

    storage: int
    category: int
    """Position in ``CATEGORIES``."""
    bytes: int
    start: int
    end: int


_AT = {name: position for position, name in enumerate(CATEGORIES)}


def spans(track: MemoryTrack, device: str) -> list[Span]:
    """The whole life of every storage on ``device``, cut where its category or its size changes."""
    ledger, passes = track.ledger, _passes(track.operations)
    of_storage: dict[int, list[tuple[int, Event]]] = defaultdict(list)
    for position, event in enumerate(ledger.events):
        of_storage[event.storage].append((position, event))
    return [
        span
        for storage in ledger.storages
        if storage.device == device
        for span in _life(storage, of_storage[storage.number], track.regions, passes, len(ledger.events))
    ]


def _passes(operations: list[Operation]) -> list[int]:
    """A number for each operation, the same for those of one uninterrupted phase; recomputation is part of a backward.

    One more at the end, for the state before the first operation.
    """
    places = [(o.step, "backward" if o.phase == "recompute" else o.phase) for o in operations]
    numbers = [0]
    for before, after in pairwise(places):
        numbers.append(numbers[-1] + (before != after))
    return [*numbers[: len(places)], -1]


def _life(
    storage: Storage, events: list[tuple[int, Event]], regions: list[int], passes: list[int], end: int
) -> Iterator[Span]:
    fixed = _fixed_category(storage, events)
    recomputed = storage.region >= 0 and _is_recomputed(storage, events, regions)
    born, died = (
        next((passes[event.op] for _, event in events if event.kind == kind), None) for kind in ("born", "died")
    )
    rest = _AT["recomputed" if recomputed else "temporaries" if born == died else "held"]
    first_save = next((position for position, event in events if event.kind == "saved"), -1)
    holders, size, start, category = 0, 0, 0, rest
    for position, event in events:
        if event.kind in ("born", "resized", "died") and size:
            yield Span(storage.number, category, size, start, position)
            start = position
        if event.kind in ("born", "resized"):
            size, start = event.value, position
        elif event.kind == "died":
            return
        holders += (event.kind == "saved") - (event.kind == "released")
        is_saved = holders > 0 or position < first_save
        now = fixed if fixed is not None else _AT["saved"] if is_saved and not recomputed else rest
        if event.kind == "born":
            category = now
        elif now != category:
            yield Span(storage.number, category, size, start, position)
            start, category = position, now
    if size:
        yield Span(storage.number, category, size, start, end)


def _fixed_category(storage: Storage, events: list[tuple[int, Event]]) -> int | None:
    """The category that a storage has for all its life, because of what it is or what becomes of it."""
    kinds = {event.kind for _, event in events}
    if storage.static:
        return _AT[storage.static]
    if "optimizer state" in kinds:
        return _AT["optimizer_state"]
    if "gradient" in kinds:
        return _AT["gradients"]
    return _AT["weight_casts"] if storage.is_cast else None


def _is_recomputed(storage: Storage, events: list[tuple[int, Event]], regions: list[int]) -> bool:
    """Born in a recomputation and needed by the backward after it."""
    died = next((event.op for _, event in events if event.kind == "died"), None)
    return died is None or died > regions[storage.region] or any(event.kind == "saved" for _, event in events)
