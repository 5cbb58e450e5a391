"""Plain records of what autograd holds and does. Every instrument that looks at a graph speaks in these.

``Plain`` is data that JSON knows: numbers, text, lists and dicts of them. A tensor becomes a nested list while it is
small, else a summary ``{"shape", "dtype", "min", "max", "norm"}``. A complex number becomes its Python text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lab.contract import Fault
from lab.records.operations import (
    Checked,
    Cleared,
    Custom,
    Hook,
    Made,
    Mode,
    NonFinite,
    OptimizerStep,
    Refused,
    Written,
)
from lab.records.program import Repair, Said

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
    """Version counter at the moment that ``GraphResult.kept_bytes`` describes."""
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
    freed_moment: int | None = None
    """Operations that had run before that pass."""
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
    state: int | None = None
    """Content of its result, as in ``Made``."""
    source_state: int | None = None
    """Content that it was given."""


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
    is_parameter: bool = False


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
    stopped: int | None = None
    """Elements of a clamp to which a gradient came and which handed on none."""
    formulas: tuple[str, ...] = ()
    """For each parent the derivative with its numbers, which are those handed on; an empty text where none is known."""


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
class GraphResult(Said):
    """The graph of the tensor called ``loss``, else of the last differentiable result."""

    root: str
    """Name of the tensor whose graph this is, empty when there is none."""
    root_node: int | None
    """Its node."""
    no_graph: str
    """Why there is no graph, or why ``loss`` has none; empty otherwise."""
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    leaves: tuple[Leaf, ...]
    backward: tuple[tuple[Step, ...], ...]
    """One list of steps per backward pass, in engine order."""
    passes: tuple[Pass, ...]
    """What belongs to each list in ``backward``."""
    passes_cut: int
    """Backward passes that ran but are not kept here."""
    kept_bytes: int
    """Bytes of the distinct storages that saved tensors keep alive, each once and whole, leaves included, before backward frees them."""
    kept_bytes_after: int
    """The same at the end of the program."""
    variables: dict[str, Plain]
    """Final values of the program's own variables."""
    tensors: tuple[Named, ...]
    """Every tensor that the program has a name for at the end, parameters of its modules included."""
    cuts: tuple[Cut, ...]
    """Where a result lost its graph."""
    device: str
    seconds: float
    """Time of the program, instruments included."""
    fault: Fault | None
    classic: str = ""
    """torchviz's picture as DOT text."""
    no_classic: str = ""
    """Why torchviz cannot draw this graph; empty when it can."""
    code: str = ""
    """The program."""
    loss_state: int | None = None
    """The content, as in ``made``, of the tensor called ``loss``, else of the root."""
    made: tuple[Made, ...] = ()
    """Contents of tensors on the way to losses, to refused operations and to NaN, with the operations that made them."""
    refused: tuple[Refused, ...] = ()
    """Operations that torch refused, also those whose error the program caught."""
    written: tuple[Written, ...] = ()
    """In-place writes, the harmless ones as well."""
    nonfinite: tuple[NonFinite, ...] = ()
    """Operations with which NaN or infinity began."""
    hooks: tuple[Hook, ...] = ()
    steps: tuple[OptimizerStep, ...] = ()
    cleared: tuple[Cleared, ...] = ()
    """Gradients that were set to None or zero."""
    modes: tuple[Mode, ...] = ()
    """Switches of the gradient mode."""
    custom: tuple[Custom, ...] = ()
    """Functions with a backward in Python."""
    checked: tuple[Checked, ...] = ()
    """Derivatives beside differences in float64."""
    repairs: tuple[Repair, ...] = ()
    """Edits that were run."""
    without_fast_path: tuple[str, ...] = ()
    """Modules that ran step by step because their operations were watched; alone they would have run one fused operation."""
    asks_for_gradients: bool = True
    """The program made a tensor require gradients, or built a module."""
