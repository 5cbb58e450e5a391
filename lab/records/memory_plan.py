"""Records of a checkpoint plan. Sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlannedBlock:
    """One block and what it would be to checkpoint it."""

    number: int
    """As the knob ``blocks`` counts."""
    path: str
    kept_bytes: int
    """From its forward to its backward, when it is not checkpointed."""
    checkpointed_bytes: int
    """When it is."""
    inside_bytes: int
    """Most alive in its backward when it is checkpointed, beyond what the blocks before it keep: parameters and gradients included."""
    cost: float
    """Of one more forward, in the plan's unit."""
    checkpointed: bool
    """By the plan."""


@dataclass(frozen=True)
class PlanRun:
    """One way of checkpointing, by the model of bytes and as it ran."""

    name: str
    knobs: dict[str, Any]
    segments: int
    modelled_peak_bytes: int | None
    """By the sum over blocks; None for segments of several blocks, which it does not cover."""
    peak_bytes: int
    modelled_step_s: float | None
    """The step without checkpointing and the forwards that run twice."""
    step_s: float | None
    """Median of single steps, clocked in turns; None in a prediction."""
    recomputed_cost: float | None
    within: bool
    """The budget."""


@dataclass(frozen=True)
class CheckpointPlan:
    """The cheapest blocks to checkpoint under a budget, found exactly, run, and set beside the usual choices."""

    budget_bytes: int
    least_bytes: int
    """The lowest peak that any choice of blocks has."""
    within: bool
    """False: no choice is within the budget, and the plan is the cheapest one at ``least_bytes``."""
    measured: bool
    """False: all peaks are of tensors without data, and nothing was clocked."""
    unit: str
    """seconds, or FLOPs where nothing runs."""
    forward_cost: float
    """Of all blocks."""
    blocks: tuple[PlannedBlock, ...]
    runs: tuple[PlanRun, ...]
    """The plan first, then none, every, √n."""
    frontier_bytes: tuple[int, ...]
    """Peaks, rising, and the least recomputed cost with which each is reached."""
    frontier_cost: tuple[float, ...]
