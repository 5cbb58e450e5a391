"""The model of the caching allocator: sequences worked out by hand, and conservation on random ones."""

from __future__ import annotations

import random

import pytest

from lab.instruments.memory import caching
from lab.instruments.memory.caching import MIB, CachingAllocator


def played(moves: list[tuple[str, int]], **how) -> CachingAllocator:
    """``("a", size)`` takes a block of this name, ``("a", 0)`` gives it back."""
    allocator = CachingAllocator(**how)
    for name, size in moves:
        if size:
            allocator.take(ord(name), size)
        else:
            allocator.give(ord(name))
    return allocator


@pytest.mark.parametrize(
    ("moves", "allocated", "reserved"),
    [
        ([("a", 1)], 512, 2 * MIB),
        ([("a", 513), ("b", 512)], 1536, 2 * MIB),
        ([("a", MIB), ("b", MIB)], 2 * MIB, 2 * MIB),
        ([("a", MIB), ("b", MIB), ("c", 1)], 2 * MIB + 512, 4 * MIB),
        ([("a", MIB + 1)], MIB + 512, 20 * MIB),
        ([("a", 9 * MIB), ("b", 12 * MIB)], 21 * MIB, 32 * MIB),
        ([("a", 9 * MIB), ("b", 9 * MIB)], 18 * MIB, 20 * MIB),
        ([("a", 10 * MIB)], 10 * MIB, 10 * MIB),
        ([("a", 21 * MIB + 1)], 22 * MIB, 22 * MIB),  # what is left over is below 1 MiB and stays in the block
        ([("a", 20 * MIB), ("a", 0), ("b", 19 * MIB)], 20 * MIB, 20 * MIB),
        ([("a", 20 * MIB), ("a", 0), ("b", 18 * MIB)], 18 * MIB, 20 * MIB),
        ([("a", 6 * MIB), ("b", 6 * MIB), ("c", 6 * MIB), ("a", 0), ("c", 0), ("d", 9 * MIB)], 15 * MIB, 40 * MIB),
        ([("a", 6 * MIB), ("b", 6 * MIB), ("c", 6 * MIB), ("a", 0), ("b", 0), ("d", 12 * MIB)], 18 * MIB, 20 * MIB),
    ],
)
def test_sequences_worked_out_by_hand(moves, allocated, reserved):
    found = played(moves)
    assert (found.allocated, found.reserved) == (allocated, reserved)


def test_expandable_segments_grow_instead_of_leaving_gaps():
    moves = [("a", 12 * MIB), ("a", 0), ("b", 14 * MIB), ("b", 0), ("c", 16 * MIB)]
    assert played(moves).reserved == (12 + 14 + 16) * MIB
    assert played(moves, expandable=True).reserved == 20 * MIB


def test_out_of_memory_while_memory_is_free():
    moves = [(name, 5 * MIB) for name in "abcd"] + [("a", 0), ("c", 0), ("e", 10 * MIB)]
    failed = played(moves, cap=20 * MIB).failed
    assert failed is not None
    assert (failed.requested, failed.allocated, failed.reserved) == (10 * MIB, 10 * MIB, 20 * MIB)
    assert failed.largest_free == 5 * MIB


def test_whole_free_segments_are_given_back_before_it_fails():
    moves = [("a", 12 * MIB), ("a", 0), ("b", 14 * MIB)]
    assert played(moves, cap=20 * MIB).failed is None


def faults_of_conservation(expandable: bool) -> list[str]:
    """What does not add up while 2,000 random requests and releases are played."""
    draw, allocator, alive, found = random.Random(0), CachingAllocator(expandable=expandable), {}, []
    for name in range(2000):
        if alive and draw.random() < 0.5:
            gone = draw.choice(list(alive))
            del alive[gone]
            allocator.give(gone)
        else:
            alive[name] = int(2 ** draw.uniform(0, 25))
            allocator.take(name, alive[name])
        free = sum(block.bytes for pool in allocator._free.values() for _, _, block in pool)
        if allocator.requested != sum(alive.values()) or not allocator.requested <= allocator.allocated:
            found.append("requested")
        if allocator.allocated + free != allocator.reserved:
            found.append("given and free blocks are not the segments")
        if sum(segment.bytes for segment in allocator.segments) != allocator.reserved:
            found.append("segments")
    return found


@pytest.mark.parametrize("expandable", [False, True])
def test_given_and_free_blocks_are_what_is_reserved(expandable):
    assert not faults_of_conservation(expandable)


def test_a_planted_block_that_is_lost_is_seen(monkeypatch):
    def split(self: CachingAllocator, block: caching.Block, wanted: int, small: bool) -> None:
        block.bytes = wanted

    monkeypatch.setattr(caching.CachingAllocator, "_split", split)
    assert faults_of_conservation(expandable=False)
