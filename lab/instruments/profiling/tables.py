"""Tables of a profile: one row an operation, grouped; and the tree of calls behind them, in which totals add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lab.instruments.profiling.cost import flops, moved_bytes
from lab.instruments.profiling.tree import Tree
from lab.records.profiling import Operators

GROUPS = ("name", "shape", "module", "stack")


@dataclass(frozen=True)
class Place:
    """Where in the program an operation comes from."""

    module: str | None
    """Path and class of the module; None outside modules."""
    line: int | None
    """Line of the visitor's program, or of the lab's model."""
    stack: str
    """The innermost frames, ``function (line 12) < forward (line 8)``; empty when unknown."""


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
        self._known: dict[tuple[int, str, str, Place], int] = {}
        self._is_operator: list[bool] = []
        self._counts: list[list[int]] = []
        """Of each row: calls, self ns, total ns, device ns, bytes."""
        self._costs: list[list[int | None]] = []
        """Of each row: FLOPs, moved bytes."""

    def add(self, tree: Tree, rows: Sequence[int], places: Sequence[Place]) -> None:
        events, at_of = tree.events, {}
        repeated = {tree.parent[row] for row in rows if _repeats(tree, row)}
        for row in rows:
            shapes = events.shapes[row]
            key = (at_of.get(tree.parent[row], -1), events.name[row], str(shapes or ""), places[row])
            at = self._known.get(key)
            if at is None:
                at = self._known[key] = len(self._counts)
                self._is_operator.append(events.kind[row] == "op")
                self._counts.append([0] * 5)
                self._costs.append([None] * 2)
            at_of[row] = at
            measured = (1, tree.self_ns[row], events.duration_ns[row], tree.device_ns[row], tree.self_bytes[row])
            self._counts[at] = [old + new for old, new in zip(self._counts[at], measured, strict=True)]
            if row in repeated:
                continue
            work = flops(key[1], shapes, events.arguments[row]), moved_bytes(key[1], shapes, events.dtypes[row])
            self._costs[at] = [_plus(old, new) for old, new in zip(self._costs[at], work, strict=True)]

    def calls(self) -> Calls:
        counts = [list(column) for column in zip(*self._counts, strict=True)] or [[]] * 5
        costs = [list(column) for column in zip(*self._costs, strict=True)] or [[]] * 2
        places = [place for *_, place in self._known]
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


def _repeats(tree: Tree, row: int) -> bool:
    """Autocast calls an operation again with its inputs cast: the work is done, and counted, in the inner one."""
    above = tree.parent[row]
    return above >= 0 and tree.events.name[above] == tree.events.name[row]


def group(calls: Calls, by: str, *, device: bool) -> Operators:
    """``by``: one of ``GROUPS``. Every call is in exactly one row, so the self times of the rows add up to the whole."""
    keys = [_KEYS[by](calls, at) for at in range(len(calls.name))]
    members: dict[tuple, list[int]] = {}
    for at, key in enumerate(keys):
        members.setdefault(key, []).append(at)
    ordered = sorted(members.values(), key=lambda rows: -sum(calls.self_s[at] for at in rows))
    return Operators(
        name=tuple(calls.name[rows[0]] for rows in ordered),
        calls=tuple(sum(calls.calls[at] for at in rows) for rows in ordered),
        self_s=tuple(sum(calls.self_s[at] for at in rows) for rows in ordered),
        total_s=tuple(sum(calls.total_s[at] for at in rows) for rows in ordered),
        device_self_s=tuple(sum(calls.device_self_s[at] for at in rows) if device else None for rows in ordered),
        flops=tuple(_known_sum(calls.flops, rows) for rows in ordered),
        bytes=tuple(sum(calls.bytes[at] for at in rows) for rows in ordered),
        moved_bytes=tuple(_known_sum(calls.moved_bytes, rows) for rows in ordered),
        shapes=tuple(_the_one(calls.shapes, rows) for rows in ordered),
        module=tuple(_the_one(calls.module, rows) for rows in ordered),
        line=tuple(_the_one(calls.line, rows) for rows in ordered),
        stack=tuple(_the_one(calls.stack, rows) for rows in ordered),
    )


_KEYS: dict[str, Callable[[Calls, int], tuple]] = {
    "name": lambda calls, at: (calls.name[at],),
    "shape": lambda calls, at: (calls.name[at], calls.shapes[at]),
    "module": lambda calls, at: (calls.name[at], calls.module[at]),
    "stack": lambda calls, at: (calls.name[at], calls.stack[at], calls.line[at]),
}


def _plus(total: int | None, more: int | None) -> int | None:
    return total if more is None else more + (total or 0)


def _known_sum(column: Sequence[int | None], rows: Sequence[int]) -> int | None:
    known = [value for at in rows if (value := column[at]) is not None]
    return sum(known) if known else None


def _the_one(column: Sequence, rows: Sequence[int]):
    values = {column[at] for at in rows}
    return values.pop() if len(values) == 1 else None
