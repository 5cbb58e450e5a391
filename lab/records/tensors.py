"""What a run of the page on tensors gives: the lines of a program, its pieces of memory, and the panels of measurements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lab.contract import Fault, Site
from lab.records.program import Said


@dataclass(frozen=True)
class Input:
    """A tensor that went into an operation."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    line: int | None
    """Where it was made."""


@dataclass(frozen=True)
class Line:
    """One result of one operation of the program, or one write."""

    line: int | None
    op: str
    kind: str
    """``view``, ``new memory``, ``in place``, ``same object``, or ``outside`` for a write that no operation of torch made."""
    name: str
    """What the program calls the result; empty where it has no name."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """Empty where there are none: sparse and nested tensors."""
    offset: int
    dtype: str
    new_bytes: int
    """Bytes of memory that this operation took for its result."""
    shares_with: tuple[str, ...]
    """Names of tensors in the same memory."""
    expanded: tuple[str, ...]
    """Inputs that were repeated to fit the others."""
    promoted_from: tuple[str, ...]
    """Different dtypes of the inputs."""
    device: str
    storage: int | None
    """Number of its piece of memory."""
    tensor: int
    """Number of its record in ``Places``."""
    module: str
    inputs: tuple[Input, ...]


@dataclass(frozen=True)
class Storages:
    """Pieces of memory behind named tensors and results, as columns."""

    number: tuple[int, ...] = ()
    bytes: tuple[int, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()
    first_line: tuple[int | None, ...] = ()
    elements: tuple[int, ...] = ()
    item_bytes: tuple[int, ...] = ()
    values: tuple[tuple[Any, ...], ...] = ()
    """Contents at the end, of small ones that could be read."""


@dataclass(frozen=True)
class Strip:
    """Where the elements of a named tensor lie in its piece of memory, at the end of the program."""

    name: str
    storage: int
    positions: tuple[int, ...]
    """In elements, in the order of the indices; at most 512."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    elements: int


@dataclass(frozen=True)
class Places:
    """Tensors that had a name at some moment, as columns."""

    number: tuple[int, ...] = ()
    shape: tuple[tuple[int, ...], ...] = ()
    stride: tuple[tuple[int, ...], ...] = ()
    offset: tuple[int, ...] = ()
    dtype: tuple[str, ...] = ()
    storage: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Bindings:
    """When a name came to stand for a tensor, as columns. ``tensor`` is None when the name is gone."""

    step: tuple[int, ...] = ()
    """How many of ``lines`` were over."""
    name: tuple[str, ...] = ()
    tensor: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """A ``view`` that torch refused."""

    line: int | None
    tensor: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    asked_shape: tuple[int, ...]
    runs: tuple[tuple[int, ...], ...]
    """Dimensions of the tensor in groups that are one piece of memory each."""
    apart: tuple[int, ...]
    """The two dimensions that are no neighbours in memory."""
    cause_line: int | None
    cause_op: str
    copy_bytes: int
    """What ``reshape`` would copy."""


@dataclass(frozen=True)
class Einsum:
    """An ``einsum`` as loops, and as the operations that it became."""

    line: int | None
    equation: str
    shapes: tuple[tuple[int, ...], ...]
    loops: str
    products: int
    operations: tuple[str, ...]
    difference: float | None
    """Largest difference from the loops in float64; None where there were too many products."""


@dataclass(frozen=True)
class Note:
    """Something that was checked while the program ran, and held."""

    kind: str
    line: int | None
    evidence: dict[str, Any]
    sites: tuple[Site, ...] = ()
    times: int = 1


@dataclass(frozen=True)
class Pair:
    """Two dtypes added."""

    a: str
    b: str
    result: str
    """Empty when refused."""
    reason: str
    documented: str
    """What torch.promote_types says."""
    numpy: str
    """What NumPy would give; empty where it lacks one of them."""


@dataclass(frozen=True)
class Tier:
    """One expression of the three tiers: dimensioned tensors, 0-dim tensors, Python numbers."""

    expression: str
    result: str
    value: str
    why: str


@dataclass(frozen=True)
class Errors:
    """Rounding, as columns: what was computed, how, on how many elements, and its relative error against float64."""

    what: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    how: tuple[str, ...] = ()
    size: tuple[int, ...] = ()
    error: tuple[float, ...] = ()
    value: tuple[float, ...] = ()
    exact: tuple[float, ...] = ()


@dataclass(frozen=True)
class Format:
    """A number format."""

    dtype: str
    bytes: int
    significant_bits: int
    largest: float
    smallest_normal: float
    eps: float
    counts_to: float
    """Where a counter that adds 1 stops, measured by adding."""


@dataclass(frozen=True)
class Bridge:
    """One way between an array and a tensor."""

    call: str
    shares: bool | None
    """A write on one side arrived on the other; None when refused."""
    dtype: str
    error: str


@dataclass(frozen=True)
class Move:
    """One call that moves or converts."""

    call: str
    what: str
    same_object: bool | None
    same_address: bool | None
    optimizer_keeps: bool | None
    """The optimizer that was built before still holds the parameters of the model."""
    error: str


@dataclass(frozen=True)
class Mixed:
    """An operation with tensors on two devices."""

    call: str
    torch_says: str
    """What torch did."""
    refused_by_torch: bool
    refused_by_rule: bool
    """One device for all inputs, checked by the lab."""


@dataclass(frozen=True)
class Layout:
    """One memory format of a batch of images."""

    tensor: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    contiguous: bool
    channels_last: bool
    view: str
    """What view(N, -1) says."""


@dataclass(frozen=True)
class DataStep:
    """One line on the way from real data to tensors and back."""

    data: str
    """image, text or table."""
    call: str
    shape: tuple[int, ...]
    dtype: str
    shows: str
    """The values, or what they mean."""


@dataclass(frozen=True)
class Swap:
    """An image whose layout was changed in two ways."""

    shape: tuple[int, ...]
    pixel: tuple[float, ...]
    """The first pixel of the image, all channels."""
    permuted: tuple[float, ...]
    reshaped: tuple[float, ...]
    wrong_elements: int
    elements: int
    accepted_by: str
    """What took the wrong layout without an error."""


@dataclass(frozen=True)
class Accelerator:
    """What torch.accelerator answers here."""

    available: bool
    device: str
    count: int
    snippet: str


@dataclass(frozen=True, kw_only=True)
class TensorResult(Said):
    """One part a view; empty where the view did not ask for it."""

    view: str
    lines: tuple[Line, ...] = ()
    lines_cut: int = 0
    """Operations beyond the rows that are kept."""
    storages: Storages = field(default_factory=Storages)
    strips: tuple[Strip, ...] = ()
    places: Places = field(default_factory=Places)
    bindings: Bindings = field(default_factory=Bindings)
    refusals: tuple[Refusal, ...] = ()
    einsums: tuple[Einsum, ...] = ()
    notes: tuple[Note, ...] = ()
    names: int = 0
    """Names of tensors at the end."""
    pieces: int = 0
    """Pieces of memory behind them."""
    copied_bytes: int = 0
    """New memory that operations took to hold elements which were there already."""
    new_bytes: int = 0
    """New memory in all."""
    promotion: tuple[Pair, ...] = ()
    chosen_pair: tuple[str, str] = ("", "")
    tiers: tuple[Tier, ...] = ()
    errors: Errors = field(default_factory=Errors)
    chosen_error: float | None = None
    """Of the chosen size, order and accumulation."""
    formats: tuple[Format, ...] = ()
    bridges: tuple[Bridge, ...] = ()
    moves: tuple[Move, ...] = ()
    mixed: tuple[Mixed, ...] = ()
    layouts: tuple[Layout, ...] = ()
    accelerator: Accelerator | None = None
    data: tuple[DataStep, ...] = ()
    swap: Swap | None = None
    device: str = "cpu"
    seconds: float = 0.0
    code: str = ""
    variables: dict[str, Any] = field(default_factory=dict)
    fault: Fault | None = None
