"""What dropout layers did: one layer over many passes, a network with dropout kept on, and layers that do not listen to eval()."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Moments:
    """Mean and variance over all elements and passes."""

    mean: float
    variance: float


@dataclass(frozen=True)
class Grid:
    """A corner of the tensors, row by row. Sequences and images lie side by side in a row."""

    inputs: tuple[tuple[float, ...], ...]
    first: tuple[tuple[float, ...], ...]
    """Output of the first pass in train mode."""
    second: tuple[tuple[float, ...], ...]
    """Output of the next pass."""
    evaluated: tuple[tuple[float, ...], ...]
    """Output in eval mode."""
    first_dropped: tuple[tuple[bool, ...], ...]
    second_dropped: tuple[tuple[bool, ...], ...]
    evaluated_dropped: tuple[tuple[bool, ...], ...]
    rows_of: int
    """Rows of the whole tensor."""
    columns_of: int


@dataclass(frozen=True)
class Convergence:
    """What held after so many passes."""

    passes: int
    dropped_fraction: float
    dropped_low: float
    dropped_high: float
    mean: float
    mean_low: float
    mean_high: float
    variance: float


@dataclass(frozen=True)
class DropoutReading:
    """One module on one input."""

    dropped_fraction: float
    """Of the units (elements, rows or planes), over all passes."""
    expected_interval: tuple[float, ...]
    """(low, high): the central binomial interval of the share; see ``level``."""
    mean: float
    """Of all outputs of all passes."""
    variance: float
    predicted: Moments
    """Closed form, from the input and p."""
    level: float
    unit: str
    units: int
    """Units in one pass."""
    independent_passes: int
    """1 when every pass had the same mask."""
    kept_scale: float
    """Factor of kept elements, 1/(1 − p) for Dropout; see ``kept_shift`` for AlphaDropout."""
    kept_shift: float
    kept_error: float
    """Largest distance of a kept output from ``kept_scale``·x + ``kept_shift``."""
    same_masks: bool
    """Whether the first two passes dropped the same units."""
    partly_dropped: int
    """Units of which only a part was dropped, over all passes."""
    eval_dropped_fraction: float
    eval_gap: float
    """Largest distance between the output in eval mode and the input."""
    grid: Grid
    convergence: tuple[Convergence, ...]


@dataclass(frozen=True)
class McSample:
    """One input."""

    position: float
    """The input, a number in [-2, 2]."""
    eval_output: float
    mean: float
    std: float
    """Over the passes."""
    predicted_std: float


@dataclass(frozen=True)
class McReading:
    """A small network with dropout on: spread over passes, and what the passes cost."""

    passes: int
    samples: tuple[McSample, ...]
    mean_std: float
    """Mean of ``std`` over the samples."""
    batchnorm_batches: int
    """Batches that the BatchNorm of the network counted: only the dropout layer is in train mode."""
    one_pass_s: float
    """A prediction in eval mode."""
    all_passes_s: float
    """The same prediction with so many passes."""


@dataclass(frozen=True)
class Listener:
    """One layer or function. Gaps are the largest distance between two outputs for the same input."""

    name: str
    shape: tuple[int, ...]
    train_spread: float
    """Between two passes in train mode: random when above 0."""
    eval_spread: float
    """Between two passes in eval mode."""
    mode_gap: float
    """Between train and eval mode."""
    needs_the_batch: bool
    """In eval mode the output of the first sample depends on the others."""
    drops: str
    """What is dropped as a whole: element, row, plane; empty when nothing is."""
    warning: str
    """First line of the warning that torch gave."""
