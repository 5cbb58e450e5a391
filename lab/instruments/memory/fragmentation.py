"""Why memory is reserved and not allocated: read from the segments of an allocator's snapshot.

A snapshot of ``torch.cuda.memory`` lists segments (address, total_size, stream, segment_type small or large, is_expandable) with their
blocks (size, requested_size, state: active_allocated, active_pending_free or active_awaiting_free, inactive).
"""

from __future__ import annotations

from typing import Any

from lab.records.memory import Fragmentation

BLOCK, SMALL = 512, 1 << 20
"""Blocks are multiples of the first; up to the second they come from the small pool."""


def fragmentation(segments: list[dict[str, Any]]) -> Fragmentation:
    """Sums over all segments. ``reserved`` = allocated + pending + free in whole segments + free between blocks."""
    blocks = [(segment, block) for segment in segments for block in segment["blocks"]]
    given = [block for _, block in blocks if block["state"] == "active_allocated"]
    pending = sum(b["size"] for _, b in blocks if b["state"].startswith("active_") and b["state"] != "active_allocated")
    free = [(segment, block) for segment, block in blocks if block["state"] == "inactive"]
    whole = sum(block["size"] for segment, block in free if block["size"] == segment["total_size"])
    return Fragmentation(
        segments=len(segments),
        reserved_bytes=sum(segment["total_size"] for segment in segments),
        allocated_bytes=sum(block["size"] for block in given),
        rounding_bytes=sum(block["size"] - block.get("requested_size", block["size"]) for block in given),
        pending_bytes=pending,
        releasable_bytes=whole,
        between_bytes=sum(block["size"] for _, block in free) - whole,
        largest_free_small_bytes=_largest(free, "small"),
        largest_free_large_bytes=_largest(free, "large"),
    )


def has_room(found: Fragmentation, request_bytes: int) -> bool:
    """Whether a free block of the right pool is large enough, so that the driver need not be asked. One stream."""
    wanted = max(BLOCK, -(-request_bytes // BLOCK) * BLOCK)
    return wanted <= (found.largest_free_small_bytes if wanted <= SMALL else found.largest_free_large_bytes)


def _largest(free: list[tuple[dict[str, Any], dict[str, Any]]], kind: str) -> int:
    return max((block["size"] for segment, block in free if segment["segment_type"] == kind), default=0)
