"""Plain records of what a program did with tensors, with or without a graph: the way from inputs to results and the events on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Plain = Any
"""Data that JSON knows, as in ``lab.records.graph``."""


@dataclass(frozen=True)
class Operand:
    """A tensor that an operation was given, as it was then."""

    name: str
    """The program's name for it, or empty."""
    shape: tuple[int, ...] | None
    dtype: str
    strides: tuple[int, ...]
    is_leaf: bool
    requires_grad: bool
    grad_fn: str
    """Class of its node, empty when it has none."""
    inference: bool
    line: int | None
    """Where it was made."""
    made_by: str
    """Operation that made it, such as ``mul``; empty when that was not seen."""
    module: str | None
    """Module that made it."""
    view_of: str
    """The program's name for what it is a view of, or a word for it; empty when it is no view."""
    base_is_leaf: bool
    base_line: int | None
    made_without_grad: bool
    """It was made while gradients were switched off."""
    value: Plain
    state: int
    """Its content, as in ``Made``."""


@dataclass(frozen=True)
class Refused:
    """An operation that torch refused, whether the program caught the error or not."""

    operation: str
    line: int | None
    module: str | None
    kind: str
    """Class name of the exception."""
    message: str
    operands: tuple[Operand, ...]
    grad_enabled: bool
    moment: int
    """Operations that had run before it."""


@dataclass(frozen=True)
class Made:
    """One content of one tensor and the operation that made it: a step of the way from inputs to results."""

    state: int
    """Number of this content within the result."""
    name: str
    """The program's name for the tensor, or empty."""
    operation: str
    """Empty when no operation was seen: it came from outside torch, or it is a parameter."""
    line: int | None
    module: str | None
    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool
    is_leaf: bool
    grad_enabled: bool
    """Whether gradients were recorded while it was made."""
    inference: bool
    inputs: tuple[int, ...]
    """States that it was made from."""
    value: Plain
    nan: bool
    infinite: bool
    node: int | None = None
    """Its node in the graph of the result or of a pass."""
    number: Plain = None
    """A plain number that the operation gave to Python instead of a tensor."""
    moment: int | None = None
    """Operations that had run before it."""
    zero: bool = False
    """A large tensor of zeros: its value is not kept."""
    repeats: bool = False
    """Its operation was given an index in which a place stands twice."""


@dataclass(frozen=True)
class Written:
    """An in-place write."""

    moment: int
    """Operations that had run before it."""
    line: int | None
    operation: str
    name: str
    module: str | None
    caller: str
    """Library function that the program called, such as ``step``; empty for the program itself."""
    storage: int
    through_data: bool
    """No version counter moved: the write went through ``.data``."""
    version: int | None
    grad_enabled: bool
    before: Plain
    after: Plain
    state: int
    """The content that it left, as in ``Made``."""


@dataclass(frozen=True)
class NonFinite:
    """An operation whose result holds NaN or infinity although what it was given holds none of that kind."""

    moment: int
    operation: str
    line: int | None
    module: str | None
    name: str
    kind: Literal["NaN", "infinity"]
    index: tuple[int, ...]
    """Place of the first such element."""
    count: int
    elements: int
    operands: tuple[Operand, ...]
    at_index: tuple[Plain, ...]
    """Value of each operand at that place; None where it has no such place."""
    result: Plain
    given_infinity: bool
    """One of the operands held infinity."""
    reaches: bool
    """The result of this operation went into the loss, or into the root of a pass."""
    state: int
    numbers: tuple[Plain, ...]
    """Arguments that are numbers."""
    dtype: str
    lasts: bool
    """A living tensor of the program holds it, or what was made of it, at the end."""


@dataclass(frozen=True)
class Hook:
    """A hook that the program put on a tensor."""

    moment: int
    line: int | None
    kind: str
    """``register_hook``, ``retain_grad``, ``register_post_accumulate_grad_hook``."""
    name: str
    node: int | None
    """Node that the tensor had then."""
    calls: tuple[tuple[Plain, Plain], ...]
    """(gradient in, gradient out) of each call."""
    changed: bool


@dataclass(frozen=True)
class OptimizerStep:
    """One call of ``Optimizer.step``."""

    moment: int
    line: int | None
    optimizer: str
    parameters: tuple[str, ...]
    without_gradient: tuple[str, ...]
    """Parameters whose ``.grad`` was None."""


@dataclass(frozen=True)
class Cleared:
    """``.grad`` set to None or overwritten with zero."""

    moment: int
    line: int | None
    leaf: str
    caller: str


@dataclass(frozen=True)
class Custom:
    """A ``torch.autograd.Function`` whose backward somebody wrote in Python."""

    name: str
    node: str
    """Class of its nodes."""
    by_program: bool
    forward_line: int | None
    backward_line: int | None
    """Line of ``def backward``, or of its first decorator."""
    forward_arguments: tuple[str, ...]
    """Without ``ctx``."""
    once_differentiable: bool


@dataclass(frozen=True)
class Mode:
    """A switch of gradients on or off."""

    moment: int
    line: int | None
    enabled: bool
    inference: bool
    """In inference mode, where it changes nothing."""


@dataclass(frozen=True)
class Checked:
    """A derivative that the engine handed on, beside differences of the same operation in float64."""

    operation: str
    line: int | None
    order: int
    """1 for the derivative, 2 for the derivative of the derivative."""
    index: tuple[int, ...]
    at: float
    engine: float
    left: float
    """(f(x) - f(x - h)) / h."""
    right: float
    step: float
