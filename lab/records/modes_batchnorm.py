"""What normalisation layers did: statistics batch by batch, the gap between the modes, and what moves the statistics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchRow:
    """One batch through the module in train mode. Lists are over channels."""

    batch: int
    """From 1."""
    values: int
    """n: values of one channel in the batch."""
    batch_mean: tuple[float, ...]
    batch_var_biased: tuple[float, ...]
    """Divided by n: what train mode normalises with."""
    batch_var_unbiased: tuple[float, ...]
    """Divided by n − 1: what is stored."""
    running_mean: tuple[float, ...] | None
    """After this batch. None without running statistics."""
    running_var: tuple[float, ...] | None
    num_batches_tracked: int | None
    weight_of_batch: float | None
    """Weight of this batch in the running statistics: the momentum, or 1/k when that is None."""
    train_std: tuple[float, ...]
    """Standard deviation of the output in train mode, divided by n."""
    eval_std: tuple[float, ...]
    """Of the output in eval mode, on the same batch, after it was stored."""
    train_mean: tuple[float, ...]
    eval_mean: tuple[float, ...]
    mode_gap: float
    """Root mean square distance between both outputs for this batch."""
    fresh_gap: float
    """The same for a batch that the module has never seen."""
    formula_error: float
    """Largest distance of the train output from (x − μ)/√(σ_b² + ε) in float64."""
    gradient_error: float
    """Largest distance of the input's gradient from (g − mean(g) − y·mean(g·y))/√(σ_b² + ε), relative to the largest one."""


@dataclass(frozen=True)
class SizeRow:
    """One batch size: a module that has stored exactly this batch (momentum 1)."""

    batch: int
    values: int
    """n: values of one channel."""
    ratio: float | None
    """Standard deviation of the eval output over that of the train output, first channel. None when torch refuses."""
    predicted: float | None
    """√((σ_b² + ε)/(σ_u² + ε))."""
    limit: float
    """√((n − 1)/n): the same for ε = 0."""
    worst_error: float | None
    """Largest distance of ratio and prediction over the channels."""
    error: str
    """What torch said instead."""


@dataclass(frozen=True)
class ServingRow:
    """Serving data scale·x + shift, against the statistics of training."""

    shift: float
    scale: float
    gap: float
    """Root mean square distance between eval output and what train mode would give on the same data."""
    predicted: float
    """The same from means and variances alone."""
    eval_mean: float
    """Mean of the eval output: 0 when serving looks like training."""
    eval_std: float


@dataclass(frozen=True)
class Reach:
    """One normalisation layer on the same tensor."""

    layer: str
    mode: str
    """train or eval."""
    shares: tuple[tuple[float, ...], ...]
    """N rows of C numbers: share of the positions of that sample and channel that the first output depends on."""
    values: int
    """Elements that it depends on: n of its mean and variance; 1 when stored statistics are used."""
    samples: int
    """Samples among them."""
    mean: float
    """Of the output over those elements, 0 where the layer subtracts its own mean."""
    std: float


@dataclass(frozen=True)
class Treatment:
    """One thing done to a layer that had seen a few batches."""

    name: str
    batches_counted: int
    """By how much ``num_batches_tracked`` grew."""
    mean_moved: float
    """Largest change of a running mean."""
    weight_gradient: bool
    """Whether the affine weight got a gradient."""
    output_gap: float | None
    """Root mean square distance of the output from that of the usual step. None when there was no output."""
    meaning: str
    error: str
    """What torch said instead of running."""


@dataclass(frozen=True)
class Recomputed:
    """Running statistics recomputed over a set of batches: reset_running_stats(), momentum=None, one pass in train mode."""

    running_mean: tuple[float, ...]
    data_mean: tuple[float, ...]
    """Mean of each channel over all of the data."""
    before: tuple[float, ...]
    """What momentum 0.1 had left after the same batches."""
