"""Plain records of what autograd holds and does. Every instrument that looks at a graph speaks in these.

``Plain`` is data that JSON knows: numbers, text, lists and dicts of them. A tensor becomes a nested list while it is
small, else a summary ``{"shape", "dtype", "min", "max", "norm"}``. A complex number becomes its Python text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Plain = Any
Kind = Literal["leaf", "function", "view", "in-place", "custom", "checkpoint", "output"]


@dataclass(frozen=True)
class Saved:
    """One tensor that a node keeps for its backward. Read without unpacking: nothing is recomputed by looking."""

    slot: str
    """Name that the derivative formula gives it: ``self``, ``other``, ``result``, ``tensors[0]``."""
    shape: tuple[int, ...] | None
    """None for a placeholder (checkpoint: recomputed when backward asks for it)."""
    dtype: str | None
    bytes: int | None
    """Bytes of the tensor itself: elements times element size."""
    storage_bytes: int | None
    """Bytes of the whole storage that it keeps alive, which a view shares with its base."""
    storage: int | None
    """Number of the storage within this result: equal numbers are one piece of memory."""
    saved_version: int | None
    """Version counter when the node was born."""
    current_version: int | None
    """Version counter at the moment that ``Result.kept_bytes`` describes."""
    leaf: str | None
    """Name of the leaf that this saved tensor is."""
    variable: str | None
    """The program's name for this tensor, leaf or not."""
    view_of: str | None
    """The program's name for another tensor with the same memory, such as a weight that was saved transposed."""
    freed: bool
    """Backward has let go of it."""
    recomputed: bool
    """A marker of activation checkpointing: backward runs the forward again to get it."""
    changed_line: int | None
    """Line of the first in-place write after it was saved."""
    changed_by: str
    """Operation of that write, such as ``add_``; empty when nothing was written."""
    freed_line: int | None = None
    """Line of the pass that freed it."""
    freed_by: str = ""
    """Call of that pass, such as ``loss.backward``."""


@dataclass(frozen=True)
class Node:
    """One node of the autograd graph."""

    id: int
    name: str
    """Class of the node: ``MulBackward0``, ``AccumulateGrad``."""
    kind: Kind
    label: str
    """The operation (``mul``) or, for a leaf, the variable (``w``)."""
    variables: tuple[str, ...]
    """The program's names for the tensor that this node produced."""
    shape: tuple[int, ...] | None
    dtype: str | None
    device: str | None
    line: int | None
    """Line of the program, from 1; the innermost one inside the program's own functions."""
    module: str | None
    """Path and class of the ``nn.Module`` that ran it: ``0.linear1 (Linear)``."""
    value: Plain
    """The tensor as it was when the operation had run; None when it was not seen from Python."""
    grad: Plain
    """For a leaf its ``.grad`` at the end; else the gradient that the last backward pass brought to it."""
    saved: tuple[Saved, ...]
    moment: int | None = None
    """Operations that had run before it."""
    state: int | None = None
    """The content that it made, as in ``Made``."""


@dataclass(frozen=True)
class Edge:
    """Data flows from source to target, gradients from target to source."""

    source: int
    target: int
    index: int
    """Which output of source."""
    slot: int
    """Which input of target, counting those that need no gradient."""


@dataclass(frozen=True)
class Leaf:
    """A leaf tensor of the graph."""

    name: str
    shape: tuple[int, ...]
    grad: Plain
    """``.grad`` at the end: after the program's own backward passes, or after the one that the lab ran."""
    node: int


@dataclass(frozen=True)
class Cut:
    """An operation of the program whose input was connected to a graph and whose result is not."""

    operation: str
    reason: Literal["detach", "no_grad", "inference_mode", "integer", "copy", "leaves torch"]
    line: int | None
    source: str
    """The program's name for the connected input, or empty."""
    target: str
    """The program's name for the result, or empty."""
    module: str | None = None
    """Module that ran it."""
    reaches: bool = False
    """Its result went into the loss, or into the root of a pass."""
    number: Plain = None
    """What it gave to Python where that is plain data."""


@dataclass(frozen=True)
class Named:
    """A tensor that the program has a name for when it ends."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    is_leaf: bool
    grad: Plain
    """``.grad``; None when it is None."""
    node: int | None
    """Its node in the graph of the result."""
    grad_fn: str
    """Class of its node, empty when it has none."""
    line: int | None


@dataclass(frozen=True)
class Step:
    """One node run by the engine."""

    node: int
    incoming: Plain
    """Gradient that arrived, summed over all paths; a list with one entry per output when the node has several."""
    given: tuple[Plain, ...]
    """Gradient handed to each parent that takes one, in the order of the node's inputs."""
    parents: tuple[int, ...]
    """Ids of these parents."""
    before: Plain = None
    """For a leaf: ``.grad`` before and after the incoming gradient was added."""
    after: Plain = None


@dataclass(frozen=True)
class Pass:
    """One call of the backward engine."""

    call: str
    """As in the program: ``loss.backward``, ``torch.autograd.grad``."""
    by: Literal["program", "lab"]
    line: int | None
    root: int | None
    """Node from which it started."""
    retain_graph: bool
    create_graph: bool
    kept_bytes: int
    """Bytes that the graph kept alive just before."""
    kept_bytes_after: int
    nodes: tuple[Node, ...]
    """Nodes of its graph that are not in the graph of the result."""
    edges: tuple[Edge, ...]
    """Edges of its graph that are not in the graph of the result."""
    steps_cut: int
    """Steps that were run but not kept here."""
    error: str
    """Message of the error that ended it, or empty."""
    inputs: tuple[str, ...] | None = None
    """Names of the tensors that the call was asked about; None when it fills the leaves."""
    moment: int = 0
    """Operations that had run before it."""
    roots: tuple[int, ...] = ()
    """Contents, as in ``Made``, that it started from."""
    input_states: tuple[int, ...] = ()
    """Contents, as in ``Made``, of ``inputs``."""
    caller: str = ""
    """Library function that called the engine for the program, such as ``gradcheck``; empty for the program itself."""
    length: int = 0
    """Nodes that were walked just before it."""


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


@dataclass(frozen=True)
class Checked:
    """A derivative that the engine handed on, beside differences of the same operation in float64."""

    operation: str
    line: int | None
    node: int | None
    order: int
    """1 for the derivative, 2 for the derivative of the derivative."""
    argument: str
    index: tuple[int, ...]
    at: float
    engine: float
    left: float
    """(f(x) - f(x - h)) / h."""
    right: float
    step: float
