"""Where a program waits for its device, line by line, and what copies cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.contract import Fault
from lab.records.program import Said


@dataclass(frozen=True)
class Wait:
    """A line that needs a value on the host."""

    line: int
    source: str
    """What the program wrote: item(), float(), if, a boolean index, ..."""
    op: str
    """The operation by which the value comes."""
    times: int
    in_loop: bool
    seconds: float | None
    """Measured on a CUDA device; None elsewhere."""


@dataclass(frozen=True)
class Bandwidth:
    """Columns: copies by kind and size, the shortest of several."""

    kind: tuple[str, ...] = ()
    bytes: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Lanes:
    """Columns: what ran when, of copies and kernels on streams."""

    lane: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    start_s: tuple[float, ...] = ()
    end_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Flag:
    """What pinning and non_blocking do here, tried."""

    call: str
    outcome: str
    helps: bool


@dataclass(frozen=True, kw_only=True)
class TransferResult(Said):
    """Everything the page shows; what its view does not measure is empty."""

    view: str
    waits: tuple[Wait, ...] = ()
    steps: int = 0
    """Optimizer steps of the program."""
    bandwidth: Bandwidth = field(default_factory=Bandwidth)
    flags: tuple[Flag, ...] = ()
    lanes: Lanes = field(default_factory=Lanes)
    overlap: float | None = None
    """Share of the shorter of copying and computing that is hidden behind the other."""
    early_wrong: int | None = None
    """Reads before the copy had ended that gave other values, of ``early_reads``."""
    early_reads: int = 0
    needs_gpu: str = ""
    """What this view needs that is not here."""
    values: dict[str, float] | None = None
    code: str = ""
    seconds: float = 0.0
    fault: Fault | None = None
