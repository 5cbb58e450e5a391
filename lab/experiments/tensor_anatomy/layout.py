"""Where the elements of a tensor lie, and when ``view`` can describe them anew. Pure arithmetic on shape, stride, offset.

Element (i, j, …) lies at offset + i·stride[0] + j·stride[1] + …. Two neighbouring dimensions are one run of memory when
stride[i] = size[i+1]·stride[i+1]; a new shape must cut the elements where the runs end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol


class Place(Protocol):
    """A tensor as a description of memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Broken:
    """Two neighbouring dimensions that are no neighbours in memory, though one new dimension would span both."""

    first: int
    second: int
    stride: int
    """Of the first."""
    wanted: int
    """What it would have to be: size · stride of the second."""


def flat_positions(shape: Sequence[int], stride: Sequence[int], offset: int, most: int | None = None) -> list[int]:
    """Positions of the elements in the storage, in order of the indices; the first ``most`` of them."""
    count = math.prod(shape)
    wanted = count if most is None else min(count, most)
    found = []
    for number in range(wanted):
        left, position = number, offset
        for size, step in zip(reversed(shape), reversed(stride), strict=True):
            left, index = divmod(left, size)
            position += index * step
        found.append(position)
    return found


def runs(shape: Sequence[int], stride: Sequence[int]) -> list[tuple[int, ...]]:
    """Dimensions in groups that are one piece each: [(0,), (1, 2)]. Dimensions of size 1 belong to none."""
    found: list[tuple[int, ...]] = []
    for dim, (size, step) in enumerate(zip(shape, stride, strict=True)):
        if size == 1:
            continue
        if found and stride[found[-1][-1]] == size * step:
            found[-1] = (*found[-1], dim)
        else:
            found.append((dim,))
    return found


def broken_pair(shape: Sequence[int], stride: Sequence[int], asked: Sequence[int]) -> Broken | None:
    """The first place where ``asked`` would join what lies apart; None where ``view`` is possible."""
    if not math.prod(shape):
        return None
    cuts, count = set(), 1
    for size in asked:
        count *= size
        cuts.add(count)
    before = runs(shape, stride)
    done = 1
    for group, after in pairwise(before):
        done *= math.prod(shape[dim] for dim in group)
        if done not in cuts:
            second = after[0]
            return Broken(group[-1], second, stride[group[-1]], shape[second] * stride[second])
    return None


def asked_shape(sizes: Sequence[int], count: int) -> tuple[int, ...] | None:
    """``sizes`` with -1 filled in; None where they do not hold ``count`` elements."""
    known = math.prod(size for size in sizes if size != -1)
    if list(sizes).count(-1) == 1 and known and count % known == 0:
        return tuple(count // known if size == -1 else size for size in sizes)
    return tuple(sizes) if -1 not in sizes and known == count else None


def is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """One run in the order of the indices, without gaps."""
    found = runs(shape, stride)
    return not math.prod(shape) or not found or (len(found) == 1 and stride[found[0][-1]] == 1)


_EXACT = 4096


def overlap(a: Place, b: Place) -> bool:
    """Whether two tensors in one piece of memory have an element in common; of large ones, whether their ranges meet."""
    if math.prod(a.shape) <= _EXACT and math.prod(b.shape) <= _EXACT:
        positions = set(flat_positions(a.shape, a.stride, a.offset))
        return not positions.isdisjoint(flat_positions(b.shape, b.stride, b.offset))
    return a.offset <= _last(b) and b.offset <= _last(a)


def _last(place: Place) -> int:
    return place.offset + sum((size - 1) * step for size, step in zip(place.shape, place.stride, strict=True))


def misfit(a: Sequence[int], b: Sequence[int]) -> tuple[int, int, int] | None:
    """(dimension counted from the last, size in a, size in b) of the first place where two shapes do not broadcast."""
    for back, (m, n) in enumerate(zip(reversed(a), reversed(b), strict=False), 1):
        if m != n and 1 not in (m, n):
            return -back, m, n
    return None


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The common shape; None where there is none."""
    longest = max(map(len, shapes), default=0)
    found = []
    for column in zip(*((1,) * (longest - len(shape)) + tuple(shape) for shape in shapes), strict=True):
        sizes = {size for size in column if size != 1}
        if len(sizes) > 1:
            return None
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)


def permutation(old: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """How to permute ``old`` into ``new``; None where the sizes are others, or stand in the same order without the ones."""
    if sorted(old) != sorted(new) or [n for n in old if n > 1] == [n for n in new if n > 1]:
        return None
    left = list(range(len(old)))
    found = []
    for size in new:
        dim = next(dim for dim in left if old[dim] == size)
        left.remove(dim)
        found.append(dim)
    return tuple(found)
