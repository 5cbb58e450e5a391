"""What a run of modules in train and in eval mode measured: one part a view, each with records of its own."""

from __future__ import annotations

from dataclasses import dataclass

from lab.contract import Fault
from lab.records.modes_batchnorm import BatchRow, Reach, Recomputed, ServingRow, SizeRow, Treatment
from lab.records.modes_dropout import DropoutReading, Listener, McReading
from lab.records.modes_models import ForgottenEval, ModelScan, SwitchRow
from lab.records.program import Said


@dataclass(frozen=True)
class Scan:
    """One model: which of its modules change under eval(), and what forgetting costs."""

    model: str
    modes: ModelScan | None
    """None in the study of the forgotten switch, and when the model did not run."""
    loss_name: str
    """Empty when there is no loss."""
    loss_train: float | None
    """On the model's batch in train mode, mean of several seeds."""
    loss_eval: float | None
    cost: ForgottenEval | None


@dataclass(frozen=True)
class Chosen:
    """Values of the knobs that figures and findings refer to."""

    shift: float
    scale: float
    treatment: str
    mode: str
    gradients: str
    batch: int
    p: float
    same_mask: bool
    eps: float
    momentum: float | None
    affine: bool


@dataclass(frozen=True)
class ModesResult(Said):
    """One part a view; None where the view did not ask for it."""

    view: str
    study: str
    module: str
    """The layer that ran."""
    shape: tuple[int, ...]
    """Of one input of that layer."""
    chosen: Chosen
    dropout: DropoutReading | None = None
    mc_dropout: McReading | None = None
    listeners: tuple[Listener, ...] | None = None
    batchnorm: tuple[BatchRow, ...] | None = None
    """One row a batch; empty when torch refused the batch."""
    sizes: tuple[SizeRow, ...] | None = None
    serving: tuple[ServingRow, ...] | None = None
    norms: tuple[Reach, ...] | None = None
    treatments: tuple[Treatment, ...] | None = None
    recomputed: Recomputed | None = None
    switches: tuple[SwitchRow, ...] | None = None
    scan: Scan | None = None
    device: str = "cpu"
    dtype: str = "float32"
    fault: Fault | None = None
