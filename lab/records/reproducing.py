"""Two recordings of a computation aligned, where they part first, how the gap grows, and which lines draw random numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lab.contract import Fault
from lab.records.program import Said


@dataclass(frozen=True)
class First:
    """Where two recordings part."""

    place: str
    """Step, phase and module, or the line of a program."""
    line: int | None
    op: str
    index: int
    """Among the operations of the first recording, from 0."""
    shape: tuple[int, ...]
    gap: float
    """Largest absolute difference of the results; 0 where an operation is there in one recording only."""
    share: float
    """Of elements that differ in any bit."""
    kind: Literal["bits", "extra op", "missing op"]


@dataclass(frozen=True)
class Timeline:
    """Columns: the operations in the order of both recordings. Long stretches that are equal are one entry."""

    index: tuple[int, ...] = ()
    count: tuple[int, ...] = ()
    """Operations that the entry stands for."""
    place: tuple[str, ...] = ()
    op: tuple[str, ...] = ()
    side: tuple[str, ...] = ()
    """both, A or B: which recordings have it."""
    equal: tuple[bool, ...] = ()
    gap: tuple[float, ...] = ()


@dataclass(frozen=True)
class Growth:
    """After one step of both trainings."""

    step: int
    gap: float
    """Norm of the difference of all parameters over their norm."""
    loss_a: float
    loss_b: float


@dataclass(frozen=True)
class Draw:
    """Operations that advanced a generator, in order."""

    index: int
    line: int
    op: str
    count: int
    generator: str
    in_a: bool
    in_b: bool


@dataclass(frozen=True)
class Sensitive:
    """One operation under other circumstances, on this host."""

    op: str
    threads_equal: bool | None
    """The same bits with one thread and with two; None where this host has one core."""
    distinct: int
    """Different results of ``of`` calls with two threads."""
    of: int
    distinct_flag: int
    """The same under deterministic algorithms; -1 where they refuse it."""
    batches_differ: tuple[int, ...]
    """Batch sizes for which the first row differs from the same row in a batch of 64."""


@dataclass(frozen=True)
class Refused:
    """What deterministic algorithms do not allow."""

    op: str
    message: str


@dataclass(frozen=True)
class Source:
    """Something that results may depend on."""

    name: str
    value: str
    pinned: bool


@dataclass(frozen=True)
class LevelRow:
    """One yardstick of sameness."""

    name: Literal["the same bits", "the same curve", "the same conclusion"]
    holds: bool
    measured: float
    yardstick: float
    words: str


@dataclass(frozen=True, kw_only=True)
class ReproResult(Said):
    """Everything the page shows; what its view does not measure is empty."""

    view: str
    change: str = ""
    first: First | None = None
    timeline: Timeline = field(default_factory=Timeline)
    operations_a: int = 0
    operations_b: int = 0
    equal_operations: int = 0
    growth: tuple[Growth, ...] = ()
    distinct: int = 0
    """Different final results of ``repeats`` runs."""
    repeats: int = 0
    draws: tuple[Draw, ...] = ()
    sensitive: tuple[Sensitive, ...] = ()
    refused: tuple[Refused, ...] = ()
    cost: dict[str, float] = field(default_factory=dict)
    """Seconds of a training step by setting."""
    sources: tuple[Source, ...] = ()
    levels: tuple[LevelRow, ...] = ()
    seeds: tuple[float, ...] = ()
    """Final loss of the unchanged training by seed."""
    values: dict[str, Any] | None = None
    code: str = ""
    seconds: float = 0.0
    fault: Fault | None = None
