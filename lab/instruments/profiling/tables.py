"""Tables of a profile: one row an operation, grouped; and the tree of calls behind them, in which totals add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lab.instruments.profiling.cost import WITH_COST, flops, moved_bytes
from lab.instruments.profiling.tree import Tree
from lab.records.profiling import Operators

GROUPS = ("name", "shape", "module", "stack")


class Place(NamedTuple):
    """Where in the program an operation comes from."""

    module: str | None
    """Path and class of the module; None outside modules."""
    line: int | None
    """Line of the visitor's program, or of the lab's model."""
    stack: str
    """All frames of the program, ``function (line 12) < forward (line 8)``; empty when unknown."""


NOWHERE = Place(None, None, "")


@dataclass
class Calls:
    """The tree of calls, merged: one row for all calls of the same operation at the same place of the tree. Times in s.

    Sums over rows are exact: ``total_s`` is ``self_s`` plus that of the children, up to the rounding of a float.
    """

    parent: list[int]
    """Row of the caller, -1 at the top."""
    name: list[str]
    is_operator: list[bool]
    """Not a range."""
    shapes: list[str]
    module: list[str | None]
    line: list[int | None]
    stack: list[str]
    calls: list[int]
    self_s: list[float]
    total_s: list[float]
    device_self_s: list[float]
    """Kernels and copies that it launched itself."""
    flops: list[int | None]
    bytes: list[int]
    """Allocated minus freed by the operation itself."""
    moved_bytes: list[int | None]


def merge_calls(profiles: Iterable[tuple[Tree, Sequence[int], Sequence[Place]]]) -> Calls:
    """The calls of several steps in one tree. Of each step: its tree, which rows of it count (operations and ranges,
    parents first), and the place of every row."""
    merged = _Merged()
    for tree, rows, places in profiles:
        merged.add(tree, rows, places)
    return merged.calls()


class _Merged:
    def __init__(self) -> None:
        self._known: dict[tuple[int, str, str, int], int] = {}
        self._places: dict[Place, int] = {}
        self._is_operator: list[bool] = []
        self._counts: list[list[int]] = []
        """Of each row: calls, self ns, total ns, device ns, bytes."""
        self._costs: list[list[int | None]] = []
        """Of each row: FLOPs, moved bytes."""

    def add(self, tree: Tree, rows: Sequence[int], places: Sequence[Place]) -> None:
        events, known, at_of = tree.events, self._known, {}
        parents, names, kinds = tree.parent, events.name, events.kind
        repeated = {parents[row] for row in rows if names[row] == names[parents[row]] and parents[row] >= 0}
        numbers: dict[int, int] = {}
        for row in rows:
            shapes, name = events.shapes[row], names[row]
            place = places[row]
            number = numbers.get(id(place))  # hashing a place for each row takes longer than all else
            if number is None:
                number = numbers[id(place)] = self._places.setdefault(place, len(self._places))
            key = (at_of.get(parents[row], -1), name, str(shapes) if shapes else "", number)
            at = known.get(key)
            if at is None:
                at = known[key] = len(self._counts)
                self._is_operator.append(kinds[row] == "op")
                self._counts.append([0] * 5)
                self._costs.append([None] * 2)
            at_of[row] = at
            counts = self._counts[at]
            counts[0] += 1
            counts[1] += tree.self_ns[row]
            counts[2] += events.duration_ns[row]
            counts[3] += tree.device_ns[row]
            counts[4] += tree.self_bytes[row]
            if (
                name in WITH_COST and row not in repeated
            ):  # autocast runs an operation again inside itself: counted there
                work = flops(name, shapes, events.arguments[row]), moved_bytes(name, shapes, events.dtypes[row])
                self._costs[at] = [_plus(old, new) for old, new in zip(self._costs[at], work, strict=True)]

    def calls(self) -> Calls:
        counts = [list(column) for column in zip(*self._counts, strict=True)] or [[]] * 5
        costs = [list(column) for column in zip(*self._costs, strict=True)] or [[]] * 2
        numbered = list(self._places)
        places = [numbered[number] for *_, number in self._known]
        return Calls(
            parent=[parent for parent, *_ in self._known],
            name=[name for _, name, *_ in self._known],
            is_operator=self._is_operator,
            shapes=[shapes for *_, shapes, _ in self._known],
            module=[place.module for place in places],
            line=[place.line for place in places],
            stack=[place.stack for place in places],
            calls=counts[0],
            self_s=[ns / 1e9 for ns in counts[1]],
            total_s=[ns / 1e9 for ns in counts[2]],
            device_self_s=[ns / 1e9 for ns in counts[3]],
            bytes=counts[4],
            flops=costs[0],
            moved_bytes=costs[1],
        )


def group(calls: Calls, by: str, *, device: bool) -> Operators:
    """``by``: one of ``GROUPS``. Every call is in exactly one row, so the self times of the rows add up to the whole."""
    keys = [_KEYS[by](calls, at) for at in range(len(calls.name))]
    members: dict[tuple, list[int]] = {}
    for at, key in enumerate(keys):
        members.setdefault(key, []).append(at)
    ordered = sorted(
        members.values(), key=lambda rows: (not calls.is_operator[rows[0]], -sum(calls.self_s[at] for at in rows))
    )
    inner = _inner(calls, keys)
    return Operators(
        name=tuple(calls.name[rows[0]] for rows in ordered),
        calls=tuple(sum(calls.calls[at] for at in rows) for rows in ordered),
        self_s=tuple(sum(calls.self_s[at] for at in rows) for rows in ordered),
        total_s=tuple(sum(calls.total_s[at] for at in rows if not inner[at]) for rows in ordered),
        device_self_s=tuple(sum(calls.device_self_s[at] for at in rows) if device else None for rows in ordered),
        flops=tuple(_known_sum(calls.flops, rows) for rows in ordered),
        bytes=tuple(sum(calls.bytes[at] for at in rows) for rows in ordered),
        moved_bytes=tuple(_known_sum(calls.moved_bytes, rows) for rows in ordered),
        shapes=tuple(_the_one(calls.shapes, rows) for rows in ordered),
        module=tuple(_the_one(calls.module, rows) for rows in ordered),
        line=tuple(_the_one(calls.line, rows) for rows in ordered),
        stack=tuple(_the_one(calls.stack, rows) for rows in ordered),
        is_operator=tuple(calls.is_operator[rows[0]] for rows in ordered),
    )


def _inner(calls: Calls, keys: Sequence[tuple]) -> list[bool]:
    """Calls inside another of the same row, as in a recursion: their time is in its total already."""
    around: list[frozenset] = []
    inner = []
    for at, parent in enumerate(calls.parent):
        above = around[parent] if parent >= 0 else frozenset()
        inner.append(keys[at] in above)
        around.append(above if inner[-1] else above | {keys[at]})
    return inner


_KEYS: dict[str, Callable[[Calls, int], tuple]] = {
    "name": lambda calls, at: (calls.is_operator[at], calls.name[at]),
    "shape": lambda calls, at: (calls.is_operator[at], calls.name[at], calls.shapes[at]),
    "module": lambda calls, at: (calls.is_operator[at], calls.name[at], calls.module[at]),
    "stack": lambda calls, at: (calls.is_operator[at], calls.name[at], calls.stack[at], calls.line[at]),
}


def _plus(total: int | None, more: int | None) -> int | None:
    return total if more is None else more + (total or 0)


def _known_sum(column: Sequence[int | None], rows: Sequence[int]) -> int | None:
    known = [value for at in rows if (value := column[at]) is not None]
    return sum(known) if known else None


def _the_one(column: Sequence, rows: Sequence[int]):
    values = {column[at] for at in rows}
    return values.pop() if len(values) == 1 else None
