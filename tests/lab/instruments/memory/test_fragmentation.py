"""A snapshot's segments taken apart: by hand, and against the model of the allocator written in the snapshot's form."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from lab.instruments.memory.caching import MIB, CachingAllocator
from lab.instruments.memory.fragmentation import fragmentation, has_room

SEGMENTS = [
    {
        "device": 0, "address": 1 << 30, "total_size": 20 * MIB, "segment_type": "large", "stream": 0, "is_expandable": False,
        "blocks": [
            {"size": 4 * MIB, "requested_size": 4 * MIB - 100, "state": "active_allocated"},
            {"size": 6 * MIB, "requested_size": 0, "state": "inactive"},
            {"size": 2 * MIB, "requested_size": 2 * MIB, "state": "active_pending_free"},
            {"size": 8 * MIB, "requested_size": 0, "state": "inactive"},
        ],
    },
    {
        "device": 0, "address": 2 << 30, "total_size": 2 * MIB, "segment_type": "small", "stream": 0, "is_expandable": False,
        "blocks": [{"size": 2 * MIB, "requested_size": 0, "state": "inactive"}],
    },
]  # fmt: skip


def test_by_hand():
    found = fragmentation(SEGMENTS)
    assert (found.segments, found.reserved_bytes, found.allocated_bytes) == (2, 22 * MIB, 4 * MIB)
    assert (found.rounding_bytes, found.pending_bytes) == (100, 2 * MIB)
    assert (found.releasable_bytes, found.between_bytes) == (2 * MIB, 14 * MIB)
    assert (found.largest_free_large_bytes, found.largest_free_small_bytes) == (8 * MIB, 2 * MIB)


def test_a_request_with_enough_free_in_sum_has_no_room():
    found = fragmentation(SEGMENTS)
    assert has_room(found, 8 * MIB)
    assert not has_room(found, 10 * MIB)  # 14 MiB are free between blocks
    assert has_room(found, MIB)


def as_snapshot(allocator: CachingAllocator) -> list[dict[str, Any]]:
    """The model's segments in the snapshot's form."""
    blocks = [*allocator._given.values(), *(block for pool in allocator._free.values() for _, _, block in pool)]
    return [
        {
            "total_size": segment.bytes,
            "segment_type": "small" if segment.small else "large",
            "blocks": [
                {"size": b.bytes, "requested_size": b.requested, "state": "inactive" if b.free else "active_allocated"}
                for b in sorted(blocks, key=lambda b: b.start) if b.segment is segment
            ],
        }
        for segment in allocator.segments
    ]  # fmt: skip


def churned(seed: int) -> CachingAllocator:
    draw, allocator, alive = random.Random(seed), CachingAllocator(), []
    for number in range(300):
        if alive and draw.random() < 0.48:
            allocator.give(alive.pop(draw.randrange(len(alive))))
        else:
            allocator.take(number, draw.choice((300, 5000, MIB, 3 * MIB, 11 * MIB)) + draw.randrange(999))
            alive.append(number)
    return allocator


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_sum_to_what_the_allocator_says(seed):
    allocator = churned(seed)
    found = fragmentation(as_snapshot(allocator))
    assert found.reserved_bytes == allocator.reserved
    assert found.allocated_bytes == allocator.allocated
    assert found.rounding_bytes == allocator.allocated - allocator.requested
    assert found.allocated_bytes + found.releasable_bytes + found.between_bytes == allocator.reserved
    for size in (found.largest_free_large_bytes, found.largest_free_large_bytes + 1):
        before = allocator.reserved
        if size > MIB:
            assert allocator.take(-size, size)
            assert (allocator.reserved == before) == has_room(found, size)
            assert has_room(found, size) == (size <= found.largest_free_large_bytes)
            allocator.give(-size)


def test_a_planted_block_counted_as_free_is_caught():
    planted = [replace_state(segment) for segment in SEGMENTS]
    assert fragmentation(planted) != fragmentation(SEGMENTS)
    assert fragmentation(planted) == replace(
        fragmentation(SEGMENTS), allocated_bytes=0, rounding_bytes=0, between_bytes=18 * MIB
    )


def replace_state(segment: dict[str, Any]) -> dict[str, Any]:
    return segment | {
        "blocks": [b | {"state": b["state"].replace("active_allocated", "inactive")} for b in segment["blocks"]]
    }
