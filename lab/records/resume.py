"""What stopping, saving and going on measured: two curves and their gap, the parts of a file, keys, refusals, a program's events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.contract import Fault
from lab.records.program import Said

_WORDS = {
    "buffers": "the buffers of BatchNorm",
    "model": "the parameters of the model",
    "optimizer": "the optimizer's state",
    "scheduler": "the schedule",
    "optimizer and scheduler": "optimizer state and schedule",
    "scaler": "the gradient scaler",
    "ema": "the average of the weights",
    "sampler": "the order of the samples",
    "torch_rng": "torch's generator",
    "torch generator": "torch's generator",
    "python_rng": "Python's generator",
    "python generator": "Python's generator",
    "gradients": "the gradients of the open accumulation",
    "your functions": "what your functions lost",
}


def part_words(name: str) -> str:
    """A part of the checkpoint, in words."""
    return _WORDS.get(name, name)


@dataclass(frozen=True)
class PartOfFile:
    """One part of the checkpoint."""

    name: str
    bytes: int
    """Of a file that holds this part alone."""
    tensor_bytes: int
    """Of the distinct storages in it."""
    entries: int
    restored: bool
    """It was taken from the file."""


@dataclass(frozen=True)
class Resumed:
    """Going on without some parts, against the training that was never stopped. Steps count from the stop, the first is 0."""

    left_out: str
    first_different: int | None
    """First step whose training loss differs in any bit; None: never in the steps that were run."""
    first_gap: float
    mean_gap: float
    weights_apart: float
    """Norm of the difference of all parameters after the last step, over the norm of those of the training that went on."""
    eval_gap_model: float
    """Evaluation loss right after loading, less the one right before the stop."""
    eval_gap_average: float
    """The same for the moving average of the weights."""
    lr_due: float
    """Learning rate after the first optimizer step, of the training that went on."""
    lr: float


@dataclass(frozen=True)
class Key:
    """One entry of a state dict on its way into a model."""

    name: str
    state: Literal["loaded", "missing", "unexpected", "another shape"]
    file_shape: tuple[int, ...] | None
    model_shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Keys:
    """What loading a state dict into a model did."""

    matched: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    prefix: str
    """What stands before every name of the file and no name of the model; empty where there is none."""
    changed: int
    """Tensors of the model that equal the file's afterwards: compared, not counted from the answer."""
    on_meta: int
    """Tensors of the model that still have no memory afterwards."""
    error: str
    """What torch said when it refused."""
    rows: tuple[Key, ...]


@dataclass(frozen=True)
class Position:
    """An optimizer's state by position: whose it was, and whose it is after loading."""

    position: int
    saved_for: str
    loaded_into: str
    saved_shape: tuple[int, ...]
    shape: tuple[int, ...]
    norm: float
    """Of the state that was saved there."""


@dataclass(frozen=True)
class FileCase:
    """One way of writing or reading a file, tried now."""

    what: str
    bytes: int
    outcome: str
    """What came out, in words; torch's message where it refused."""
    refused: bool
    code: str
    """The lines that were run."""


@dataclass(frozen=True)
class LoadCase:
    """One kind of object in a file, loaded with ``weights_only``."""

    what: str
    global_: str
    """The first name outside tensors and containers that the file asks for; empty where there is none."""
    refused: bool
    repair: str
    """What to store instead; empty where it loads."""
    message: str


@dataclass(frozen=True)
class Event:
    """Something that a program did to state: saved, loaded, built."""

    kind: Literal["save", "load", "model", "optimizer", "scheduler", "scaler", "generator"]
    line: int
    text: str
    name: str = ""
    """What the program calls the object."""


Cause = Literal[
    "nothing loaded", "partly loaded", "on meta", "optimizer fresh", "lr replaced", "lr reset", "scheduler fresh",
    "scaler fresh", "another order", "view saved", "groups kept", "permutation drawn again",
]  # fmt: skip


@dataclass(frozen=True)
class StateLoss:
    """State that a program had and does not have after loading, or has in the wrong place."""

    cause: Cause
    line: int
    """The line to blame."""
    other_line: int | None
    name: str
    before: float | str
    """What was there, or was asked for."""
    after: float | str
    names: tuple[str, ...] = ()
    number: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ResumeResult(Said):
    """Everything the page shows; what its view does not measure is empty."""

    view: str
    stop_after: int = 0
    before: tuple[float, ...] = ()
    """Training loss of the steps before the stop."""
    straight: tuple[float, ...] = ()
    """Training loss after the stop, of the training that was never stopped."""
    resumed: tuple[float, ...] = ()
    """Of the one that was loaded into a run built anew."""
    gap: tuple[float, ...] = ()
    """Their absolute difference."""
    lr_straight: tuple[float, ...] = ()
    """Learning rate after each step."""
    lr_resumed: tuple[float, ...] = ()
    first_different: int | None = None
    weights_apart: float = 0.0
    eval_gap_model: float = 0.0
    eval_gap_average: float = 0.0
    chosen: Resumed | None = None
    omissions: tuple[Resumed, ...] = ()
    """Every part left out in turn."""
    parts: tuple[PartOfFile, ...] = ()
    file_bytes: int = 0
    keys: Keys | None = None
    positions: tuple[Position, ...] = ()
    files: tuple[FileCase, ...] = ()
    refusals: tuple[LoadCase, ...] = ()
    events: tuple[Event, ...] = ()
    losses: tuple[StateLoss, ...] = ()
    values: dict[str, float] | None = None
    """Plain numbers that the program left."""
    code: str = ""
    seconds: float = 0.0
    fault: Fault | None = None
