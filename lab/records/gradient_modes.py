"""What gradient modes did: lines of a program with their mode, tensors with their birth, and measured tables."""

from __future__ import annotations

from dataclasses import dataclass

from lab.contract import Fault
from lab.records.program import Repair, Said


@dataclass(frozen=True)
class Operation:
    """One result of an operation of the program."""

    line: int | None
    op: str
    mode: str
    """grad, no_grad or inference."""
    requires_grad: bool
    grad_fn: str
    inference: bool
    version: int | None
    """None: the tensor keeps no version counter."""
    name: str = ""
    birth: int | None = None
    """Index into the births."""


@dataclass(frozen=True)
class Birth:
    """Where a tensor came from."""

    name: str
    line: int | None
    mode: str
    op: str
    shape: tuple[int, ...] = ()
    inference: bool = False
    requires_grad: bool = False
    grad_fn: str = ""
    switch_line: int | None = None
    """The line that brought the mode, where it was seen."""
    cut_line: int | None = None
    """Nearest line behind it where history was lost. With ``requires_grad``: of another input, which is a constant."""
    cut_by: str = ""
    """detach, no_grad or inference."""
    cut_switch_line: int | None = None
    step: int = 0
    """Number of operations before it."""


@dataclass(frozen=True)
class Switch:
    """The mode changed while the program ran."""

    line: int
    from_: str
    to: str
    how: str
    """with, call, decorator, generator, end or function."""
    step: int = 0
    """Number of operations before it."""


@dataclass(frozen=True)
class Leak:
    """A mode that outlived the place where it was switched."""

    line: int
    """Of the switch."""
    mode: str
    before: str
    how: str
    """end: it holds at the end of the program. generator: a suspended generator left it to its caller. function: a function returned with it."""
    at: int
    """Where it went out."""
    operations: int = 0
    """Operations outside that ran in it."""


@dataclass(frozen=True)
class LineBand:
    """The modes in which a line ran."""

    line: int
    modes: tuple[str, ...]
    times: int


@dataclass(frozen=True)
class Blame:
    """The operation that ended the program, with the births of what it got."""

    line: int | None
    op: str
    operands: tuple[Birth, ...]
    message: str
    repair: str = ""


@dataclass(frozen=True)
class Filled:
    """One line of backward: which leaves got a gradient, by owner."""

    line: int
    owners: tuple[str, ...]
    times: int


@dataclass(frozen=True)
class IdleStep:
    """A line whose optimizer steps changed nothing: none of its tensors requires a gradient or has one."""

    line: int
    optimizer: str
    tensors: int
    born: int | None
    """Line where the first of them was born."""
    born_mode: str
    name: str


@dataclass(frozen=True)
class ModeRow:
    """One mode, measured."""

    mode: str
    requires_grad: bool
    grad_fn: str
    inference: bool
    version: int | None
    records: bool
    """A backward from the result reached the leaf."""
    saved_bytes: int
    """Activations that Linear, GELU, Linear kept for backward."""
    mul_s: float
    inplace_s: float
    view_s: float
    enter_s: float | None
    """Entering and leaving once; None where there is nothing to enter."""


@dataclass(frozen=True)
class SwitchCell:
    """One of the combinations of train and eval with a gradient mode."""

    training: bool
    mode: str
    requires_grad: bool
    inference: bool
    nodes: int
    saved_bytes: int
    stats_moved: bool
    two_calls_equal: bool
    forward_s: float


@dataclass(frozen=True)
class Use:
    """A tensor of one kind, used in one way."""

    kind: str
    use: str
    outcome: str
    """ok, or the class of the error."""
    message: str
    """What torch said, or what came out."""
    code: str
    """A program that shows it."""


@dataclass(frozen=True, kw_only=True)
class ModesOfGradients(Said):
    """One part a view; empty where the view did not ask for it."""

    view: str
    lines: tuple[Operation, ...] = ()
    lines_cut: int = 0
    births: tuple[Birth, ...] = ()
    bands: tuple[LineBand, ...] = ()
    switches: tuple[Switch, ...] = ()
    leaks: tuple[Leak, ...] = ()
    filled: tuple[Filled, ...] = ()
    idle_steps: tuple[IdleStep, ...] = ()
    idle: tuple[int, ...] = ()
    """Lines with enable_grad in force inside inference mode."""
    blame: Blame | None = None
    modes: tuple[ModeRow, ...] = ()
    matrix23: tuple[SwitchCell, ...] = ()
    uses: tuple[Use, ...] = ()
    values: dict[str, float] | None = None
    """Numbers and truth values that the program left, by name."""
    repairs: tuple[Repair, ...] = ()
    code: str = ""
    device: str = "cpu"
    seconds: float = 0.0
    fault: Fault | None = None
