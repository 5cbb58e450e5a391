"""Recording operations with their bits, and comparing two recordings.

NOTE on comparing
1. Each operation is recorded with its place, its name, the shapes of its results, and a hash of their bits in logical order:
   the layout in memory does not count, a permutation does. Sums as hashes would miss it.
2. Recordings are aligned by (place, name, shapes) before anything is compared: an inserted cast or a recomputation is an
   operation more, not a difference of all that follow.
3. Aligned operations are compared bit by bit, or by value where their dtypes differ.
4. What only makes room (empty, detach) is left out.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from lab import torch_private
from lab.records.reproducing import First, Timeline

_KEPT = 200_000
"""Elements of a result that are kept to measure a gap."""
_LIMIT = 20_000
_ROOM = (
    "empty",
    "detach",
    "alias",
    "view",
    "_unsafe_view",
    "t",
    "transpose",
    "permute",
    "expand",
    "as_strided",
    "unsqueeze",
    "squeeze",
)


@dataclass(frozen=True)
class Row:
    """One operation."""

    place: str
    line: int
    op: str
    shapes: tuple[tuple[int, ...], ...]
    bits: bytes
    values: tuple[torch.Tensor, ...]
    dtypes: tuple[str, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.place, self.op, self.shapes)


@dataclass
class Recording:
    """What ran, in order."""

    rows: list[Row] = field(default_factory=list)
    draws: list[tuple[int, str]] = field(default_factory=list)
    """(line, operation) of what advanced torch's generator, in order."""
    cut: bool = False


class Recorder(torch_private.TorchDispatchMode):
    """Context manager: every operation inside, forward, backward and optimizer."""

    def __init__(self, line: Callable[[], int] = lambda: 0, *, tape: bool = False) -> None:
        super().__init__()
        self.recording, self.place, self._line, self._tape = Recording(), "", line, tape

    def told(self, place: str) -> None:
        """What follows belongs to ``place``."""
        self.place = place

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch.get_rng_state() if self._tape else None
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.strip("_")
        if before is not None and not torch.equal(before, torch.get_rng_state()):
            self.recording.draws.append((self._line(), name))
        if name.startswith(_ROOM[0]) or name in _ROOM:
            return out
        if len(self.recording.rows) >= _LIMIT:
            self.recording.cut = True
            return out
        tensors = list(_tensors(out)) or (
            list(_tensors(args[:1])) if func.overloadpacket.__name__.endswith("_") else []
        )
        if tensors:
            line = self._line()
            place = f"line {line}" if line else self.place
            values = tuple(t.detach().clone() if t.numel() <= _KEPT else t.detach().flatten()[:0] for t in tensors)
            self.recording.rows.append(
                Row(
                    place, line, name, tuple(tuple(t.shape) for t in tensors), bits_of(tensors), values,
                    tuple(str(t.dtype) for t in tensors),
                )
            )  # fmt: skip
        return out


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and value.device.type == "cpu":
            yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def bits_of(tensors: list[torch.Tensor]) -> bytes:
    """A hash of all bits in logical order."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        flat = tensor.detach().contiguous().reshape(-1)
        if flat.dtype is torch.bool or not flat.is_complex():
            digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        else:
            digest.update(torch.view_as_real(flat).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.digest()


@dataclass(frozen=True)
class Pair:
    """One entry of the alignment: an operation of both, or of one recording."""

    a: int | None
    b: int | None


def aligned(a: Recording, b: Recording) -> Iterator[Pair]:
    """Operations that belong together, in order."""
    numbers: dict[tuple[Any, ...], int] = {}
    left, right = ([numbers.setdefault(row.key, len(numbers)) for row in one.rows] for one in (a, b))
    if left == right:  # no need to look for it
        yield from (Pair(i, i) for i in range(len(left)))
        return
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (Pair(i, j) for i, j in zip(range(i1, i2), range(j1, j2), strict=True))
        else:
            yield from (Pair(i, None) for i in range(i1, i2))
            yield from (Pair(None, j) for j in range(j1, j2))


def compared(a: Recording, b: Recording) -> tuple[First | None, Timeline, int]:
    """(where they part first, all entries with equal stretches joined, operations that are equal)."""
    columns: list[list[Any]] = [[] for _ in range(7)]
    first: First | None = None
    extra: First | None = None
    same = 0
    for pair in aligned(a, b):
        row = a.rows[pair.a] if pair.a is not None else b.rows[pair.b or 0]
        side = "both" if pair.a is not None and pair.b is not None else "A" if pair.a is not None else "B"
        gap, share = (0.0, 0.0) if side != "both" else _gap(a.rows[pair.a or 0], b.rows[pair.b or 0])
        equal = side == "both" and share == 0.0
        same += equal
        index = pair.a if pair.a is not None else (columns[0][-1] + columns[1][-1] if columns[0] else 0)
        shape = row.shapes[0] if row.shapes else ()
        if side == "both" and not equal and first is None:
            first = First(row.place, row.line or None, row.op, index, shape, gap, share, "bits")
        elif side != "both" and extra is None:
            extra = First(
                row.place, row.line or None, row.op, index, shape, 0.0, 0.0, "missing op" if side == "A" else "extra op"
            )
        if equal and columns[0] and columns[5][-1] and columns[4][-1] == "both":
            columns[1][-1] += 1
            continue
        for column, value in zip(columns, (index, 1, row.place, row.op, side, equal, gap), strict=True):
            column.append(value)
    return first or extra, Timeline(*map(tuple, columns)), same


def _gap(a: Row, b: Row) -> tuple[float, float]:
    """(largest absolute difference, share of elements that differ); by value where the dtypes differ."""
    if a.bits == b.bits and a.dtypes == b.dtypes:
        return 0.0, 0.0
    worst = differing = total = 0.0
    for x, y in zip(a.values, b.values, strict=True):
        if x.shape != y.shape:
            return float("inf"), 1.0
        if not x.numel():
            continue
        p, q = (x.double(), y.double()) if x.is_floating_point() else (x.long(), y.long())
        unequal = (p != q) & ~((p != p) & (q != q))
        differing, total = differing + float(unequal.sum()), total + x.numel()
        if bool(unequal.any()):
            difference = (p - q).abs()[unequal].double()
            worst = max(
                worst,
                float(difference[difference.isfinite()].max()) if bool(difference.isfinite().any()) else float("inf"),
            )
    if not total:  # too large to be kept: the hashes differ
        return (0.0, 0.0) if a.bits == b.bits else (float("nan"), 1.0)
    return worst, differing / total
