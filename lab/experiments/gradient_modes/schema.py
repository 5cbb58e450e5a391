"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Knob, Limits, check, knob
from lab.records.gradient_modes import ModesOfGradients as Result

__all__ = ["DEFAULT_PROGRAM", "MODES", "OUTER", "VIEWS", "Params", "Result", "offered"]

VIEWS = ("program", "matrix", "uses")
MODES = (
    *("grad", "no_grad", "inference_mode", "set_grad_enabled(False)", "enable_grad", "inference_mode(False)"),
    *("detach", ".data"),
)
OUTER = ("none", "no_grad", "inference_mode")
DEFAULT_PROGRAM = """model = nn.Linear(3, 3)
cache = {}

def rotate(x):
    if "table" not in cache:
        cache["table"] = torch.arange(3.0)
    return x * cache["table"]

with torch.inference_mode():
    validation = rotate(model(torch.ones(1, 3)))

loss = rotate(model(torch.ones(1, 3))).sum()
loss.backward()
"""


@dataclass(frozen=True)
class Params:
    """The program, or the modes that are measured."""

    view: str = knob("program", choices=VIEWS)
    """The program line by line, the measured modes, or which later use of a tensor fails."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=6.0, memory_bytes=1 << 30), max_bytes=1 << 16)
    """A PyTorch program. `torch`, `nn`, `F` and `math` are there without import."""
    mode: str = knob("enable_grad", choices=MODES)
    """The inner mode of the row that is measured beside the usual ones."""
    outer: str = knob("inference_mode", choices=OUTER)
    """The mode around it."""
    eval_mode: bool = knob(False)
    """The network of the saved bytes is in eval mode."""
    width: int = knob(128, low=8, high=1024)
    """Hidden units of the network."""
    batch: int = knob(32, low=1, high=512)
    """Rows of its input."""
    repeats: int = knob(5, low=3, high=30)
    """Rounds in which all modes take turns; the shortest time counts."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every random generator before the program starts."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Default device of new tensors."""

    def __post_init__(self) -> None:
        check(self)


USED = {
    "program": ("code", "seed"),
    "matrix": ("mode", "outer", "eval_mode", "width", "batch", "repeats", "seed"),
    "uses": (),
}
"""Knobs of each view; view and device always matter."""


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob where it matters for the view."""
    return k if k.name in ("view", "device", *USED[values["view"]]) else None
