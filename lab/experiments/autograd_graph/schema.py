"""What the experiment takes and gives."""

from __future__ import annotations

from dataclasses import dataclass

from lab.contract import Fault, Limits, check, knob
from lab.records.graph import (
    Checked,
    Cleared,
    Custom,
    Cut,
    Edge,
    Hook,
    Leaf,
    Made,
    Mode,
    Named,
    Node,
    NonFinite,
    OptimizerStep,
    Pass,
    Plain,
    Refused,
    Step,
    Written,
)

DEFAULT_PROGRAM = """x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([0.5, -1.0], requires_grad=True)
h = torch.sigmoid(x * w)
loss = (h + x).sum()
loss.backward()
"""


@dataclass(frozen=True)
class Params:
    """The program and what it runs on."""

    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=6.0, memory_bytes=1 << 30))
    """A PyTorch program. `torch`, `nn`, `F` and `math` are there without import."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every random generator before the program starts."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Default device of new tensors."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Warned:
    """A warning that the program caused."""

    text: str
    line: int | None


@dataclass(frozen=True)
class Result:
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
    printed: str
    echo: str
    """``repr`` of the last line when that is an expression."""
    warned: tuple[Warned, ...]
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
    asks_for_gradients: bool = True
    """The program made a tensor require gradients, built a module, or called backward."""
