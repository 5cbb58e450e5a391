"""Two paths over the same golden rows, stage by stage, and what tells them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.contract import Fault
from lab.records.program import Said


@dataclass(frozen=True)
class StageGap:
    """One stage of both paths."""

    name: str
    gap: float
    """Largest difference over the standard deviation of the stage; for features the largest over columns, each by its own;
    for names the share that differs."""
    agrees: bool
    equal: bool
    """Bit for bit."""
    scale: float
    """The standard deviation that the gap is measured in; 0 for names."""
    repeated_gap: float
    """The same between two calls of the serving path."""


@dataclass(frozen=True)
class Cause:
    """What tells the two paths apart at the first stage where they part."""

    kind: str
    """features, normalisation, dtype, weights, buffers, mode, randomness, shape, postprocessing, labels, or stage."""
    names: tuple[str, ...]


@dataclass(frozen=True)
class ColumnGap:
    """One column of the features."""

    name: str
    gap: float
    """Largest difference over the standard deviation of the column in training."""


@dataclass(frozen=True)
class Power:
    """Whether the golden set shows a skew."""

    skew: str
    rows: int
    shown: bool
    """By comparing values."""
    labels: float
    """Share of names that change."""
    first: str
    """The first stage that parts, or torch's words where it refused to run."""


@dataclass(frozen=True)
class Drift:
    """How far live rows have moved from the training rows."""

    column: str
    shift_std: float
    """Difference of the means over the standard deviation in training."""


@dataclass(frozen=True)
class Pair:
    """Two values of a program that ought to be one."""

    kind: Literal["same names, another order", "same up to a scale"]
    first: str
    second: str
    number: float
    """Share of places that differ; ratio of the spreads."""
    line: int | None


@dataclass(frozen=True, kw_only=True)
class SkewResult(Said):
    """Everything the page shows; what its view does not measure is empty."""

    view: str
    skew: str = ""
    rows: int = 0
    tolerance: float = 0.0
    stages: tuple[StageGap, ...] = ()
    first: str = ""
    """The first stage that parts; empty where none does."""
    cause: Cause | None = None
    labels_changed: float = 0.0
    probability_gap: float = 0.0
    """Largest difference of a probability, where there is such a stage."""
    columns: tuple[ColumnGap, ...] = ()
    weights_differ: tuple[str, ...] = ()
    """Parameters and buffers of the two models, before anything ran."""
    modes_differ: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    """Of the serving model's parameters and inputs."""
    refused: str = ""
    """What torch said where the serving path did not run."""
    random_from: str = ""
    """First stage at which two calls of the serving path differ."""
    power: tuple[Power, ...] = ()
    drift: tuple[Drift, ...] = ()
    pairs: tuple[Pair, ...] = ()
    values: dict[str, float] | None = None
    code: str = ""
    seconds: float = 0.0
    fault: Fault | None = None
