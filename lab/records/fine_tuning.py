"""What a fine-tuning moved and what it did not, tensor by tensor, and the studies beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.contract import Fault
from lab.records.program import Said


@dataclass(frozen=True)
class Moved:
    """One tensor of the model, before against after."""

    name: str
    kind: Literal["weight", "statistic"]
    shape: tuple[int, ...]
    distance: float
    """Euclidean, in float64."""
    relative: float
    """Distance over the norm before; infinite where that was 0 and it moved."""
    trainable: bool
    """Its requires_grad at the end."""
    held: bool
    """By an optimizer."""
    gradient: Literal["none", "zero", "live"]
    """At the last step that the optimizer took."""


@dataclass(frozen=True)
class Accuracy:
    """Share that is right on rows that were held back."""

    task: str
    before: float
    after: float


@dataclass(frozen=True)
class LowRankRun:
    """A low-rank adaptation of both layers of the backbone."""

    rank: int
    trainable: int
    """Numbers that are trained, the head's included."""
    update_rank: int
    """Of the sum that is added to the second layer's weight, by its singular values in float64."""
    merge_gap: float
    """Largest difference of an output when the update is merged into the weight."""
    same_at_start: bool
    """Its outputs equal those of the network without it, bit for bit."""
    first_gradient_a: float
    """Norm of the gradient of the random factor in the first step."""
    first_gradient_b: float
    accuracy: float


@dataclass(frozen=True)
class FrozenMidway:
    """Twenty steps after requires_grad_(False) in the middle of a training."""

    optimizer: str
    weight_decay: float
    set_to_none: bool
    moved: float
    """Distance of the backbone's weights from where they were frozen."""


@dataclass(frozen=True)
class Share:
    """How much was frozen, and what that gave."""

    frozen: str
    """Which blocks, in words."""
    share: float
    """Of the weights of the network."""
    task: str
    data: str
    accuracy: float
    """Mean over seeds."""
    low: float
    high: float
    forgotten: float
    """Accuracy on the first task with its old head, before less after; mean over seeds."""


@dataclass(frozen=True)
class Surprise:
    """Something of a program that moved, or did not, against what was meant; each with the predicate that was checked."""

    cause: Literal[
        "left out", "stale", "not held when it had a gradient", "eval trains", "woken", "frozen moves",
        "statistics move", "stuck at zero", "nothing moved", "cut by checkpoint",
    ]  # fmt: skip
    line: int | None
    other_line: int | None
    names: tuple[str, ...]
    number: float
    other: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FineTuningResult(Said):
    """Everything the page shows; what its view does not measure is empty."""

    view: str
    recipe: str = ""
    moved: tuple[Moved, ...] = ()
    foreign: tuple[str, ...] = ()
    """What an optimizer holds and the model does not have: its shape, and the name that it had."""
    foreign_count: int = 0
    """Numbers in it."""
    missing: tuple[str, ...] = ()
    """Trainable tensors of the model that no optimizer holds."""
    losses: tuple[float, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    trainable_count: int = 0
    held_count: int = 0
    nodes: int = 0
    """Of the backward pass of one loss."""
    nodes_all: int = 0
    """Of the same loss with everything trainable."""
    state_bytes: int = 0
    """Of the optimizer, after the last step."""
    lora: LowRankRun | None = None
    """The rank that was chosen."""
    ranks: tuple[LowRankRun, ...] = ()
    midway: tuple[FrozenMidway, ...] = ()
    shares: tuple[Share, ...] = ()
    surprises: tuple[Surprise, ...] = ()
    steps: int = 0
    """Steps of optimizers that were taken."""
    values: dict[str, float] | None = None
    """Plain numbers that the program left."""
    code: str = ""
    seconds: float = 0.0
    fault: Fault | None = None
