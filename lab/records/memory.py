"""Records of what was in memory and when. Everything that looks at memory speaks in these. All sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass

CATEGORIES = (
    "parameters",
    "buffers",
    "optimizer_state",
    "gradients",
    "weight_casts",
    "saved",
    "recomputed",
    "inputs",
    "temporaries",
)
"""In stacking order from the bottom. A storage is counted in the first one that fits; see ``memory_track``."""


@dataclass(frozen=True)
class Timeline:
    """Columns, one row an operation of the dispatcher: the moment at which most was alive while it ran.

    The first row is the state before the first operation.
    """

    index: tuple[int, ...]
    """Number of the operation; -1 before the first."""
    op: tuple[str, ...]
    phase: tuple[str, ...]
    """start, zero_grad, forward, backward, recompute, optimizer."""
    module: tuple[str, ...]
    step: tuple[int, ...]
    """Training step, from 0."""
    line: tuple[int | None, ...]
    """Line of the visitor's program."""
    parameters: tuple[int, ...]
    buffers: tuple[int, ...]
    optimizer_state: tuple[int, ...]
    gradients: tuple[int, ...]
    weight_casts: tuple[int, ...]
    saved: tuple[int, ...]
    recomputed: tuple[int, ...]
    inputs: tuple[int, ...]
    temporaries: tuple[int, ...]
    unseen: tuple[int, ...] | None = None
    """Alive at that operation in the allocator and not seen by the dispatcher; None when it was not measured."""

    def totals(self) -> list[int]:
        """Bytes over all categories, a row each."""
        return [sum(row) for row in zip(*(getattr(self, category) for category in CATEGORIES), strict=True)]


@dataclass(frozen=True)
class Lives:
    """Columns, one row a piece of memory with one category, alive in rows ``first`` up to but not including ``end``."""

    first: tuple[int, ...]
    end: tuple[int, ...]
    """Rows of the timeline."""
    category: tuple[int, ...]
    """Position in ``CATEGORIES``."""
    bytes: tuple[int, ...]
    storage: tuple[int, ...]
    """Row of ``Storages``."""


@dataclass(frozen=True)
class Storages:
    """Columns, one row a storage that some row of the timeline saw alive."""

    op: tuple[str, ...]
    """The operation that made it; "before the run" for what was there already."""
    phase: tuple[str, ...]
    module: tuple[str, ...]
    name: tuple[str, ...]
    """Name of the parameter, buffer or input; "cast of weight"; else empty."""
    shape: tuple[str, ...]
    dtype: tuple[str, ...]
    line: tuple[int | None, ...]


@dataclass(frozen=True)
class Owner:
    """Who holds memory at one instant, storages with the same answer taken together."""

    category: str
    module: str
    op: str
    name: str
    """Of the largest storage, when it has one."""
    bytes: int
    count: int


@dataclass(frozen=True)
class Peak:
    """The instant at which most was alive."""

    bytes: int
    index: int
    """Number of the operation."""
    row: int
    """Row of the timeline."""
    op: str
    phase: str
    module: str
    step: int
    categories: dict[str, int]
    owners: tuple[Owner, ...]
    """The largest, largest first."""


@dataclass(frozen=True)
class SavedTensor:
    """One slot in which an autograd node keeps a tensor for backward, at the end of a forward pass."""

    operation: str
    """Class of the node, such as AddmmBackward0."""
    slot: str
    """Name in the derivative formula: self, result, mat2."""
    module: str
    shape: tuple[int, ...] | None
    """None for a placeholder of checkpointing, which has none."""
    dtype: str | None
    bytes: int | None
    """Of the tensor itself; None for a placeholder."""
    storage_bytes: int | None
    """Of the whole storage that it keeps alive."""
    storage: int | None
    """Number of the storage: equal numbers are one piece of memory."""
    holds: str
    """Category of that storage: a saved parameter costs nothing more."""
    kept: bool
    """False: recomputed when backward asks for it."""


@dataclass(frozen=True)
class CapHit:
    """The first request that did not fit under a cap on what the dispatcher sees."""

    cap_bytes: int
    request_bytes: int
    """Size of the storage that was asked for."""
    alive_bytes: int
    """Alive when it was asked for, without it."""
    index: int
    op: str
    phase: str
    module: str
    step: int
    line: int | None
    shape: str
    dtype: str
    categories: dict[str, int]
    """Alive when it was asked for."""
    owners: tuple[Owner, ...]
    held_by_exception_bytes: int
    """Freed only once the exception, whose traceback holds the frames and their tensors, was let go of."""
    after_bytes: int
    """Alive after that."""
