"""What was measured on a training program that may not learn: checks, a verdict, and the curves that confirm it.

Three kinds of statement are kept apart. Structure is true or false whatever the training does. A symptom is an effect that
several causes may have. A verdict names a cause, and needs a structural check that failed, or a replay with only that one
thing changed that learns. Everything else is a fact: a number without a judgement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.contract import Edit, Fault
from lab.records.gradients import FirstNonfinite
from lab.records.program import Said

CheckKind = Literal["structure", "symptom", "verdict", "fact"]
PartName = Literal["model", "batch", "loss", "optimizer", "step", "validation"]


@dataclass(frozen=True)
class Part:
    """One part of the training program, and where it was found."""

    name: PartName
    found: str
    """How: "make_model()", "line 12: net = Net()"; empty where the program has none."""
    line: int | None = None


@dataclass(frozen=True)
class Check:
    """One thing that was measured on the program."""

    name: str
    """The cause that it looks for, in the words of the clinic's list: ``loss_input``, ``order``, ..."""
    title: str
    """What holds when it passes, in words."""
    kind: CheckKind
    passed: bool | None
    """None: it could not be asked, or it only tells a number."""
    number: float | None
    threshold: float | None
    line: int | None
    reason: str
    """The measured number in words; why it could not be asked; what is wrong."""
    unit: str = ""
    distance: float | None = None
    """Where it lies on the common axis: 0 is ideal, 1 the threshold, above 1 beyond it; None without a threshold."""


@dataclass(frozen=True)
class Verdict:
    """The cause, named because a structure says so or because a replay with only that changed learns."""

    cause: str
    why: str
    repair: str
    line: int | None
    confirmed_by: str
    """structure, or the replay in words."""
    edits: tuple[Edit, ...] = ()
    """The repair as a change of the program."""
    edit_tested: bool = False
    """The changed program was run: the fault is gone and it learns the batch at least as well."""
    others: tuple[str, ...] = ()
    """Further causes that hold as well."""


@dataclass(frozen=True)
class Replay:
    """The same program from the same seed with one thing changed."""

    change: str
    gain: float
    """Share of the first loss that is gone after the steps on one batch; 1 is all of it."""


@dataclass(frozen=True)
class RangeTest:
    """The loss on one batch while the learning rate climbs, a step at each rate."""

    lr: tuple[float, ...]
    loss: tuple[float, ...]
    own_lr: float | None
    """The program's own rate, of its first parameter group."""


@dataclass(frozen=True)
class ParameterUpdate:
    """What one step of the program's own did to a parameter."""

    parameter: str
    shape: tuple[int, ...]
    trainable: bool
    held: bool
    """By the optimizer."""
    gradient: Literal["none", "zero", "finite", "nonfinite"]
    """Over the first batches."""
    gradient_norm: float | None
    weight_norm: float
    update_ratio: float
    """Norm of the change over norm of the parameter, in the fourth step."""
    moved: bool
    """It changed in one of the first four steps."""


@dataclass(frozen=True)
class UnitLayer:
    """The units of one activation layer over three batches."""

    layer: str
    activation: str
    units: int
    dead: float | None
    """Share of units at zero for every sample; for ReLU."""
    saturated: float | None
    """Share of values on the flat part; for tanh and sigmoid."""


@dataclass(frozen=True)
class Growth:
    """Memory that stays alive from step to step."""

    bytes_a_step: float
    tensors_a_step: float
    holder: str
    """The name by which the program reaches what stays; empty where there is none."""
    line: int | None = None


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Said):
    """Everything the clinic tells. It fills from the top: what is not there yet is empty."""

    parts: tuple[Part, ...] = ()
    missing: str = ""
    """What the program lacks to be examined, and what to write."""
    checks: tuple[Check, ...] = ()
    verdict: Verdict | None = None
    curves: dict[str, tuple[float, ...]] | None = None
    """Loss on one batch, step by step: own, reference, and repaired where the program was."""
    curve_names: dict[str, str] | None = None
    """What each curve is, in words."""
    range_test: RangeTest | None = None
    updates: tuple[ParameterUpdate, ...] = ()
    units: tuple[UnitLayer, ...] = ()
    replay: tuple[Replay, ...] = ()
    nonfinite: FirstNonfinite | None = None
    """The first operation that made a NaN or an infinity."""
    growth: Growth | None = None
    test_file: str = ""
    """A pytest file in plain torch for this program."""
    complete: bool = False
    """All checks are done."""
    cpu_s: float = 0.0
    """Processor seconds that the examination took."""
    code: str = ""
    fault: Fault | None = None
