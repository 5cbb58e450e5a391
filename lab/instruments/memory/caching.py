"""A model of CUDA's caching allocator: requests and releases replayed through its published rules, on any host.

Source: c10/cuda/CUDACachingAllocator.cpp and the notes on memory management in PyTorch's documentation.

NOTE The rules.
1. A request is rounded up to a multiple of 512 B, at least 512 B: the block.
2. Blocks up to 1 MiB come from the small pool, larger ones from the large pool. Of the free blocks of its pool the smallest
   that is large enough is taken.
3. Without one a segment is asked from the driver: 2 MiB for the small pool; in the large pool 20 MiB for blocks below
   10 MiB, else the block rounded up to 2 MiB.
4. What is left of a block becomes a free block of its own: in the small pool from 512 B on, in the large pool only above
   1 MiB. Below that the whole block is given, and the rest is inside it.
5. A freed block joins its free neighbours in its segment.
6. When the driver has no room, segments that are free as a whole are given back, and it is asked again. Then it is out of memory.
7. Expandable segments: one segment a pool that grows and shrinks at its end by pages of 2 MiB (small) or 20 MiB (large). A
   free block at the end counts towards the new one; a block is always split.
One stream, no garbage collection threshold, no limit on the size of blocks to split.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

MIB = 1 << 20
BLOCK = 512
SMALL = 1 * MIB
SMALL_SEGMENT, LARGE_SEGMENT = 2 * MIB, 20 * MIB
LARGE_REQUEST = 10 * MIB
ROUND_LARGE = 2 * MIB


@dataclass(eq=False)
class Block:
    """A stretch of a segment, given or free."""

    segment: Segment
    start: int
    bytes: int
    free: bool = True
    requested: int = 0
    before: Block | None = None
    after: Block | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """The order in which free blocks are looked through: the smallest, then the oldest segment, then the address."""
        return self.bytes, self.segment.number, self.start


@dataclass(eq=False)
class Segment:
    """What the driver gave in one piece."""

    number: int
    small: bool
    bytes: int = 0


@dataclass(frozen=True)
class OutOfMemory:
    """The request that could not be served."""

    requested: int
    block: int
    """The request in multiples of 512 B, or the segment that the driver would have had to give."""
    allocated: int
    reserved: int
    largest_free: int
    """Largest free block of its pool."""


@dataclass
class CachingAllocator:
    """``take`` and ``give`` in the order of the program. ``cap``: bytes of the device, None without end."""

    cap: int | None = None
    expandable: bool = False
    allocated: int = 0
    reserved: int = 0
    requested: int = 0
    segments: list[Segment] = field(default_factory=list)
    failed: OutOfMemory | None = None
    _given: dict[int, Block] = field(default_factory=dict)
    _free: dict[bool, list[tuple[tuple[int, int, int], int, Block]]] = field(
        default_factory=lambda: {True: [], False: []}
    )
    _last: dict[bool, Block | None] = field(default_factory=lambda: {True: None, False: None})
    _count: int = 0

    def take(self, name: int, size: int) -> bool:
        """Serve a request; False when there is no room, see ``failed``."""
        wanted = max(BLOCK, -(-size // BLOCK) * BLOCK)
        small = wanted <= SMALL
        block = self._find(small, wanted) or self._new(small, wanted, size)
        if block is None:
            return False
        self._split(block, wanted, small)
        block.free, block.requested = False, size
        self._given[name] = block
        self.allocated += block.bytes
        self.requested += size
        return True

    def give(self, name: int) -> None:
        """Free the block; it joins its free neighbours."""
        block = self._given.pop(name)
        self.allocated -= block.bytes
        self.requested -= block.requested
        block.free, block.requested = True, 0
        for other in (block.after, block.before):
            if other and other.free:
                self._forget(other)
                block = self._join(*sorted((block, other), key=lambda b: b.start))
        self._remember(block)

    def _find(self, small: bool, wanted: int) -> Block | None:
        pool = self._free[small]
        at = bisect_left(pool, ((wanted, -1, -1),))
        return pool.pop(at)[2] if at < len(pool) else None

    def _new(self, small: bool, wanted: int, size: int) -> Block | None:
        if self.expandable:
            return self._grown(small, wanted, size)
        grow = (
            SMALL_SEGMENT
            if small
            else LARGE_SEGMENT
            if wanted < LARGE_REQUEST
            else -(-wanted // ROUND_LARGE) * ROUND_LARGE
        )
        if not self._room(grow, small, size):
            return None
        self._count += 1
        segment = Segment(self._count, small, grow)
        self.segments.append(segment)
        self.reserved += grow
        return Block(segment, 0, grow)

    def _grown(self, small: bool, wanted: int, size: int) -> Block | None:
        last, page = self._last[small], SMALL_SEGMENT if small else LARGE_SEGMENT
        at_end = last.bytes if last and last.free else 0
        grow = -(-(wanted - at_end) // page) * page
        if not self._room(grow, small, size):
            return None
        if last is None:
            self._count += 1
            segment = Segment(self._count, small)
            self.segments.append(segment)
        else:
            segment = last.segment
        block = Block(segment, segment.bytes, grow, before=last)
        if last:
            last.after = block
        segment.bytes += grow
        self.reserved += grow
        if last and last.free:
            self._forget(last)
            block = self._join(last, block)
        self._last[small] = block
        return block

    def _room(self, grow: int, small: bool, size: int) -> bool:
        if self.cap is None or self.reserved + grow <= self.cap:
            return True
        self._release()
        if self.reserved + grow <= self.cap:
            return True
        largest = max((block.bytes for _, _, block in self._free[small]), default=0)
        self.failed = OutOfMemory(size, grow, self.allocated, self.reserved, largest)
        return False

    def _release(self) -> None:
        """Whole free segments go back to the driver."""
        if self.expandable:
            return
        for small in (True, False):
            for _, _, block in list(self._free[small]):
                if block.bytes == block.segment.bytes:
                    self._forget(block)
                    self.segments.remove(block.segment)
                    self.reserved -= block.bytes

    def _split(self, block: Block, wanted: int, small: bool) -> None:
        left = block.bytes - wanted
        if not (left >= BLOCK if small or self.expandable else left > SMALL):
            return
        rest = Block(block.segment, block.start + wanted, left, before=block, after=block.after)
        if block.after:
            block.after.before = rest
        block.after, block.bytes = rest, wanted
        if self._last[small] is block:
            self._last[small] = rest
        self._remember(rest)

    def _join(self, first: Block, second: Block) -> Block:
        first.bytes += second.bytes
        first.after = second.after
        if second.after:
            second.after.before = first
        if self._last[first.segment.small] is second:
            self._last[first.segment.small] = first
        return first

    def _remember(self, block: Block) -> None:
        insort(self._free[block.segment.small], (block.key, id(block), block))

    def _forget(self, block: Block) -> None:
        pool = self._free[block.segment.small]
        pool.pop(bisect_left(pool, (block.key, id(block))))
