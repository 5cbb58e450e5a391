"""What whole models do in train and in eval mode: module by module, under both switches, and when eval() was forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Ignorer:
    """One function call that did not listen to eval()."""

    function: str
    argument: str
    """The argument that decides, with its value: "training=True", "dropout_p=0.5"; empty when there is none."""
    module: str
    """Path and class of the module in whose forward it ran."""
    line: int | None
    """Line of the visitor's program."""
    kind: str
    """random, or batch statistics."""
    registered: bool = True
    """Whether the module in whose forward it ran is a submodule, so that eval() reaches it."""
    held: str = ""
    """The attribute with the plain list in which an unregistered module lies; empty when it lies in none."""
    made_anew: bool = False
    """An unregistered module that another forward made once more."""


@dataclass(frozen=True)
class Changed:
    """A buffer, or a number kept as an attribute, that a forward changed."""

    name: str
    """Path and name: ``0.mean``."""
    kind: str
    """buffer, or attribute."""
    before: float
    """For a buffer of the first element that differs."""
    after: float


@dataclass(frozen=True)
class InitialShare:
    """How much of the initial statistics a normalisation still holds."""

    module: str
    momentum: float
    batches: int
    share: float
    """(1 − momentum) to the power of batches."""


@dataclass(frozen=True)
class Nonfinite:
    """Running statistics with NaN or infinity in them."""

    buffer: str
    count: int
    of: int
    """Elements in all."""


@dataclass(frozen=True)
class ModuleRow:
    """One module that can tell train from eval mode."""

    path: str
    type: str
    training: bool
    """The mode in which it was handed over."""
    calls: int
    """Calls in one forward."""
    gap: float
    """Output gap that it causes alone, relative; 0 when the output stays the same."""
    statistics_moved: bool
    """Whether one forward in train mode changed its buffers."""
    setting: str
    """What the module says about itself, such as "p=0.5"."""


@dataclass(frozen=True)
class ModelScan:
    """The modes of one model."""

    modules: tuple[ModuleRow, ...]
    """Modules that read ``self.training``, in order of registration."""
    module_count: int
    not_scanned: int
    """Modules beyond the scan's limit."""
    in_train_mode: int
    in_eval_mode: int
    """Of all modules, as handed over."""
    gap_together: float
    eval_spread: float
    """Relative distance of two eval outputs under different seeds; above 0 something ignores eval()."""
    train_spread: float
    ignoring: tuple[Ignorer, ...]
    output_size: int
    changed_in_eval: tuple[Changed, ...] = ()
    """What one forward changed while every module was in eval mode."""
    kept_in_eval: tuple[str, ...] = ()
    """Modules that are in eval mode after ``model.train()``."""
    idle_dropouts: tuple[str, ...] = ()
    """Recurrent modules of one layer whose dropout drops nothing."""
    initial_shares: tuple[InitialShare, ...] = ()
    nonfinite: tuple[Nonfinite, ...] = ()


@dataclass(frozen=True)
class SwitchRow:
    """One combination of both switches."""

    mode: str
    gradients: str
    dropped_fraction: float
    """Share of the dropout layer's output that is zero although its input is not."""
    output_spread: float
    """Largest distance between the outputs of two calls with the same input."""
    statistics_moved: bool
    """Whether one forward changed the running statistics."""
    batches_counted: int
    requires_grad: bool
    """Of the output."""
    graph: str
    """Class of the output's ``grad_fn``; empty when no graph was recorded."""
    graph_nodes: int
    saved_bytes: int
    """Distinct storages that the graph keeps for backward, each once and whole, parameters included."""
    is_inference: bool
    """The output can never enter a graph."""
    backward_error: str
    """What ``backward`` on the output says; empty when it runs."""
    output: tuple[float, ...]
    """The first sample."""
    forward_s: float
    """Median of several forwards."""


EvaluationKind = Literal[
    "eval", "train", "dropout_in_train", "batchnorm_in_train", "sorted_in_train", "eval_after_sorted"
]
"""``sorted_in_train``: train mode, each batch of one class; ``eval_after_sorted``: eval mode, with what that had stored."""


@dataclass(frozen=True)
class CostRow:
    """One way to evaluate the same trained network on the same test set."""

    kind: EvaluationKind
    setting: str
    """The same in words."""
    batch: int
    loss: float
    accuracy: float
    """Share of correct answers."""


@dataclass(frozen=True)
class ForgottenEval:
    """Loss and accuracy by mode."""

    rows: tuple[CostRow, ...]
    """The first one is eval mode, as it should be."""
    test_points: int
    p: float

    def row(self, kind: EvaluationKind, batch: int = 128) -> CostRow:
        """The one of ``kind`` that was evaluated in batches of ``batch``."""
        return next(row for row in self.rows if (row.kind, row.batch) == (kind, batch))
