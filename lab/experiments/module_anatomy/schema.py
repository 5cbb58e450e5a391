"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Knob, Limits, check, knob
from lab.records.anatomy import AnatomyResult as Result

__all__ = ["ACTIONS", "CALLS", "DEFAULT_PROGRAM", "FILES", "HOOK_KINDS", "VIEWS", "Params", "Result", "offered"]

VIEWS = ("tree", "hooks", "state dict")
ACTIONS = (
    *("none", "to float64", "to meta", "deepcopy", "state_dict round trip"),
    *("replace a layer", "tie", "parametrize", "freeze"),
)
CALLS = ("model(x)", "model.forward(x)")
HOOK_KINDS = ("all", "forward", "backward", "the program's own")
FILES = (
    *("its own", "with a prefix", "one layer wider", "half precision", "float64", "one key missing", "one key more"),
    "the program's",
)
DEFAULT_PROGRAM = """class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q = nn.Linear(d, d)
        self.heads = [nn.Linear(d, d) for _ in range(2)]
        self.mask = torch.tril(torch.ones(4, 4))
        self.register_buffer("position", torch.zeros(4, d))
        self.register_buffer("cache", torch.zeros(1), persistent=False)
        self.gain = nn.Parameter(torch.ones(d)).double()
        self.unused = nn.Linear(d, d)

    def forward(self, x):
        h = self.mask @ self.q(x) + self.position
        for head in self.heads:
            h = h + head(h)
        return h * self.gain.float()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention(8)
        self.first = nn.Linear(8, 8)
        self.last = nn.Linear(8, 8)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.first(self.attention(x)))


model = Net()
batch = torch.randn(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
handle = model.first.register_forward_hook(lambda module, inputs, output: output * 2)
"""


@dataclass(frozen=True)
class Params:
    """The program, and what to look at."""

    view: str = knob("tree", choices=VIEWS)
    """What to look at: what is registered, hooks in their order, or loading a state dict."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=20.0, memory_bytes=2 << 30), max_bytes=1 << 16)
    """A program that makes a module; with a batch, gradients and hooks are measured as well."""
    action: str = knob("none", choices=ACTIONS)
    """Done to a copy of the model; shown is which objects are the same afterwards."""
    file: str = knob("its own", choices=FILES)
    """The state dict that is loaded. The program's: its variable state, state_dict, checkpoint or ckpt."""
    strict: bool = knob(True)
    """Raise when keys are missing or unexpected."""
    assign: bool = knob(False)
    """Put the tensors of the file in place of the module's own instead of copying their values."""
    call: str = knob("model(x)", choices=CALLS)
    """How the model is called."""
    hook_kinds: str = knob("all", choices=HOOK_KINDS)
    """Probes put on every module beside the program's own hooks, for the order."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every random generator before the program starts."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Default device of new tensors."""

    def __post_init__(self) -> None:
        check(self)


USED = {"tree": ("action",), "hooks": ("call", "hook_kinds"), "state dict": ("file", "strict", "assign")}
"""Knobs of each view; the others always matter."""


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob where it matters for the view."""
    others = {name for view, names in USED.items() if view != values["view"] for name in names}
    return None if k.name in others else k
