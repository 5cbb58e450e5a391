"""What fewer bits lose: gradient exponents against the window of a format, a scaler's steps, dtypes of operations, lost updates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lab.contract import Fault
from lab.records.program import Said


@dataclass(frozen=True)
class Histogram:
    """Columns: how many gradients of a layer have this exponent of two (floor of log2 of the absolute value)."""

    exponent: tuple[int, ...] = ()
    count: tuple[int, ...] = ()
    layer: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """A number format, measured by rounding."""

    name: str
    largest: float
    smallest_normal: float
    smallest: float
    """Above 0."""
    lost_integer: int
    """The first whole number that it cannot hold."""
    overflow: str
    """What twice the largest number becomes: inf, nan, or a number."""


@dataclass(frozen=True)
class FormatShare:
    """What storing the fp32 gradients in a format loses, of the gradients that are not 0."""

    format: str
    scale: float
    """They are multiplied by it first."""
    zero: float
    subnormal: float
    overflow: float
    measured_zero: float | None
    """Share that is 0 after a real backward pass in that dtype with that scale; None where none was run."""


@dataclass(frozen=True)
class LayerLoss:
    """One layer after a real backward pass in low precision."""

    name: str
    dtype: str
    scale: float
    zero: float
    """Share of its weight gradients that are exactly 0."""
    zero_fp32: float
    rms: float
    """Of the unscaled weight gradients."""
    infinite: bool


@dataclass(frozen=True)
class ScalerStep:
    """One training step with a gradient scaler."""

    step: int
    scale: float
    """In use in this step."""
    loss: float
    skipped: bool
    """The optimizer's step hook did not fire."""
    cause: Literal["", "inf", "nan"]
    first: str
    """The first operation that made something not finite out of finite inputs; empty where none did."""


@dataclass(frozen=True)
class Operation:
    """One operation of a program, as it reached the kernels."""

    line: int
    op: str
    inputs: tuple[str, ...]
    """Dtypes of its floating-point tensors."""
    output: str
    cast: bool
    """It only changes the dtype."""
    cached: bool = False
    """The cast of a weight that later operations of the region use again."""
    count: int = 1


@dataclass(frozen=True)
class Lost:
    """Weights that a step of Adam moved, by dtype and learning rate."""

    dtype: str
    lr: float
    moved: float
    """Share of the weights that changed in any bit."""
    predicted: float
    """Share whose distance to the next number is at most twice the learning rate."""


@dataclass(frozen=True)
class Drift:
    """A sum or average that is kept in few bits."""

    what: str
    dtype: str
    value: float
    exact: float


@dataclass(frozen=True)
class MatmulError:
    """A product of matrices against float64."""

    dtype: str
    k: int
    """Length of the sums."""
    accumulate: str
    """By torch, or one product after another in the dtype itself."""
    error: float
    """Root mean square of the difference over that of the product."""


@dataclass(frozen=True)
class Trouble:
    """Something that a program lost to few bits; each with the predicate that was checked."""

    cause: Literal[
        "overflow", "nan", "lost update", "stale cast", "autocast off", "skips", "skips for ever", "clipped while scaled",
        "stepped past the scaler", "eps is zero", "half weights", "island",
    ]  # fmt: skip
    line: int
    other_line: int | None
    name: str
    number: float
    other: float
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class PrecisionResult(Said):
    """Everything the page shows; what its view does not measure is empty."""

    view: str
    format: str = ""
    dtype: str = ""
    histogram: Histogram = field(default_factory=Histogram)
    gradients: int = 0
    zeros: int = 0
    """Gradients that are exactly 0 in float32."""
    formats: tuple[Format, ...] = ()
    shares: tuple[FormatShare, ...] = ()
    layers: tuple[LayerLoss, ...] = ()
    steps: tuple[ScalerStep, ...] = ()
    clip: str = ""
    ops: tuple[Operation, ...] = ()
    moved: tuple[Lost, ...] = ()
    drifts: tuple[Drift, ...] = ()
    matmul: tuple[MatmulError, ...] = ()
    speed: dict[str, float] = field(default_factory=dict)
    """Seconds of a training step by dtype, the shortest of several rounds in turns."""
    troubles: tuple[Trouble, ...] = ()
    values: dict[str, float] | None = None
    code: str = ""
    seconds: float = 0.0
    fault: Fault | None = None
