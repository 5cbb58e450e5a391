"""What a module owns: its tree, its tensors with what was measured of each, hooks in their order, keys of a state dict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.contract import Edit, Fault
from lab.records.program import Said

Gradient = Literal["none", "zero", "value", "not measured"]
Way = Literal["attribute", "list", "dict", "object", "class attribute", "closure", "global", "made in forward"]
"""How something is held that is not registered."""


@dataclass(frozen=True)
class TreeRow:
    """A module, where it hangs."""

    path: str
    """``blocks.0.attn``; empty for the root. What is not registered has the path by which Python reaches it: ``heads[0]``."""
    class_: str
    line: int | None
    """Line of the program that made it."""
    depth: int
    registered: bool
    identity: int
    """Equal numbers are one object."""
    parameters: int = 0
    """Elements of its own parameters, without those of its children."""
    set_line: int | None = None
    """Line that put it there."""
    training: bool = True


@dataclass(frozen=True)
class TensorRow:
    """A tensor of the model with four marks; None where a mark could not be measured."""

    name: str
    kind: str
    """parameter; buffer; buffer, not persistent; plain tensor; the first two of an unregistered module; and
    parameter that is not a leaf any more."""
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int
    line: int | None
    """Line that gave the module this tensor."""
    moves: bool | None
    """Its twin in a copy of the model changed its dtype, or for integers its device, when the copy was told to."""
    gradient: Gradient
    owned: bool | None
    """It is in a group of the optimizer."""
    changed: bool | None
    """Its bits changed in one step."""
    saved: bool
    """The state dict has it."""
    reached: bool | None
    """The graph of the loss ends in it."""
    identity: int
    storage: int
    """Equal numbers are one piece of memory."""
    owner: str = ""
    """Path of the module that holds it."""
    requires_grad: bool = False
    keys: tuple[str, ...] = ()
    """Its names in the state dict."""
    way: str = ""
    """How it is held where it is not registered."""
    device: str = "cpu"
    in_forward: bool = False
    """It was set while a forward ran."""
    gradient_norm: float | None = None
    computed: bool = False
    """It is the result of operations: it has a history."""


@dataclass(frozen=True)
class Unregistered:
    """Something that hangs beside its owner."""

    path: str
    """Of what is held: ``layers``, ``extra['proj']``."""
    line: int | None
    repair: str
    owner: str = ""
    owner_class: str = ""
    name: str = ""
    """The attribute, or the variable."""
    way: Way = "attribute"
    what: Literal["modules", "parameters", "tensor", "lost parameter", "activation"] = "modules"
    tensors: int = 0
    elements: int = 0
    modules: int = 0
    classes: tuple[str, ...] = ()
    reads_mode: bool = False
    """A module that acts differently in train and eval mode is among them."""
    read_in_forward: bool = False
    """A method of the owner's class names it."""
    times: int = 0
    """How often it was made anew, for what is made in forward."""
    in_forward: bool = False
    """It was put there while a forward ran."""
    filled_later: bool = False
    """An empty container was put there, and filled afterwards."""
    trainable: bool = False
    """A tensor of it requires a gradient."""
    shape: tuple[int, ...] = ()
    dtype: str = ""


@dataclass(frozen=True)
class Shared:
    """One object, or one piece of memory, under several names."""

    names: tuple[str, ...]
    storage: int
    kind: Literal["parameter", "buffer", "memory", "module"]
    elements: int = 0
    lines: tuple[int, ...] = ()
    repeated: bool = False
    """Made by multiplying a list."""
    class_: str = ""


@dataclass(frozen=True)
class Event:
    """One moment of a call or of its backward."""

    phase: Literal["forward", "backward"]
    path: str
    kind: str
    """call, forward, or the kind of a hook."""
    line: int | None
    mark: Literal["open", "close", "point"] = "point"
    depth: int = 0
    by: Literal["program", "probe", "torch"] = "torch"
    class_: str = ""
    shape: str = ""
    changed: str = ""
    """What the hook changed, in words; empty where it changed nothing."""
    before: float | None = None
    """2-norm of what it was given."""
    after: float | None = None
    """2-norm of what left it."""


@dataclass(frozen=True)
class HookRow:
    """A hook that is registered when the program has ended."""

    path: str
    """First name of what it hangs on."""
    kind: str
    line: int | None
    names: int = 1
    """Under how many names the module is in the model."""
    fired: int = 0
    """Calls of it in the measured pass."""
    identity: int = 0
    number: int = 0
    """Which of those with the same path, kind and line."""
    calls_before: int = 0
    """Modules that had been called when it was registered."""


@dataclass(frozen=True)
class DirectCall:
    """``module.forward(...)`` written out."""

    line: int
    class_: str
    path: str
    hooks: int
    """Hooks on this very module that did not run."""
    times: int


@dataclass(frozen=True)
class KeyRow:
    """A key, of the module, of the file, or of both."""

    key: str
    here: str
    """Shape and dtype in the module; empty where it has none."""
    there: str
    """The same in the file."""
    foreseen: str
    """fits, cast, missing, unexpected, mismatched: read from the two lists before anything is loaded."""
    changed: bool | None
    """Its bits in the module changed."""
    same_object: bool | None
    """The module still holds the same tensor."""
    loaded: bool | None = None
    """The module's tensor equals that of the file, in the module's dtype."""
    dtype_after: str = ""
    lost: int = 0
    """Elements that were finite in the file and are not in the module."""


@dataclass(frozen=True)
class Keys:
    """Loading a state dict: foreseen, then done on a copy."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]
    rows: tuple[KeyRow, ...] = ()
    file: str = ""
    error: str = ""
    loaded: int = 0
    """Keys of the module whose tensor now equals the file's."""
    changed: int = 0
    renamed: str = ""
    """The prefix whose removal would make most keys fit."""
    ties_before: int = 0
    ties_after: int = 0
    stale: int = 0
    """Tensors of the optimizer that the module no longer holds."""
    owned: int = 0
    warned: str = ""


@dataclass(frozen=True)
class Load:
    """A call of load_state_dict in the program."""

    line: int
    strict: bool
    assign: bool
    module: str
    keys: int
    given: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]
    changed: int
    """Tensors whose bits changed; -1 where that was not followed."""
    error: str
    answer_used: bool | None = None
    stale: int = 0
    """Tensors of an optimizer that the module no longer holds."""
    renamed: str = ""


@dataclass(frozen=True)
class Conversion:
    """A call such as half(), to() or to_empty() in the program."""

    line: int
    call: str
    module: str
    ties_before: int
    ties_after: int
    split: tuple[str, ...] = ()
    """Names that were one object and are two."""
    left: tuple[str, ...] = ()
    """Tensors of the module that stayed as they were: ``mean (float32)``."""
    dtype: str = ""
    optimizers: tuple[str, ...] = ()
    """Those that already held its parameters."""


@dataclass(frozen=True)
class OptimizerRow:
    """An optimizer of the program."""

    class_: str
    line: int | None
    tensors: int
    stale: int
    """Tensors in it that no module of the program holds."""
    absent: tuple[str, ...]
    """Parameters of the model that need a gradient and are not in it."""
    state: tuple[str, ...] = ()
    """Dtypes of state that differ from those of its weights: ``sum float32 beside float64``."""
    refused: str = ""
    """The message with which it was refused."""
    rates: tuple[float, ...] = ()
    """Learning rates of its groups."""


@dataclass(frozen=True)
class ActionRow:
    """One tensor before and after an action."""

    name: str
    before: str
    after: str
    same_object: bool
    owned_before: bool
    owned_after: bool


@dataclass(frozen=True)
class Action:
    """Something done to a copy of the model."""

    action: str
    rows: tuple[ActionRow, ...] = ()
    ties_before: int = 0
    ties_after: int = 0
    keys_before: int = 0
    keys_after: int = 0
    error: str = ""


@dataclass(frozen=True)
class TestedEdit:
    """An edit of the program that was run."""

    edits: tuple[Edit, ...]
    accepted: bool
    why_not: str = ""
    cures: str = ""
    """What it does away with."""
    parameters: int | None = None
    """Elements of the parameters of the repaired model."""
    keys: int | None = None


@dataclass(frozen=True)
class Suspect:
    """A method whose name looks like a misspelt special one."""

    name: str
    meant: str
    line: int
    class_: str


@dataclass(frozen=True, kw_only=True)
class AnatomyResult(Said):
    """What one run found. Parts that the view does not need are empty."""

    view: str
    root: str
    """Name of the model in the program."""
    tree: tuple[TreeRow, ...] = ()
    tensors: tuple[TensorRow, ...] = ()
    unregistered: tuple[Unregistered, ...] = ()
    events: tuple[Event, ...] = ()
    keys: Keys | None = None
    shared: tuple[Shared, ...] = ()
    fault: Fault | None = None
    hooks: tuple[HookRow, ...] = ()
    direct: tuple[DirectCall, ...] = ()
    loads: tuple[Load, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    optimizers: tuple[OptimizerRow, ...] = ()
    optimizer: str = ""
    """Whose step was measured: the program's, or plain SGD over parameters()."""
    action: Action | None = None
    lazy: tuple[str, ...] = ()
    """Tensors without a shape before the first call."""
    parametrized: tuple[str, ...] = ()
    """Weights that are computed on each access."""
    suspects: tuple[Suspect, ...] = ()
    roots: tuple[str, ...] = ()
    parameter_count: int = 0
    """Elements of the parameters, each object once."""
    count_by_module: int = 0
    """The same, summed over modules."""
    loss_name: str = ""
    no_gradient: str = ""
    """Why no gradient was measured."""
    no_moves: str = ""
    no_events: str = ""
    events_note: str = ""
    """Which probes were left out, and why."""
    batch_by_lab: str = ""
    """Shape of an input that was made up because the program has none."""
    own_hooks_skipped: int = 0
    code: str = ""
    device: str = "cpu"
    repairs: tuple[TestedEdit, ...] = ()
    cut: int = 0
    """Rows beyond the limit."""
