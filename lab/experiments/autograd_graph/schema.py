"""What the experiment takes and gives."""

from __future__ import annotations

from dataclasses import dataclass

from lab.contract import Limits, check, knob
from lab.records.graph import GraphResult as Result

__all__ = ["DEFAULT_PROGRAM", "Params", "Result"]

DEFAULT_PROGRAM = """x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([0.5, -1.0], requires_grad=True)
h = torch.sigmoid(x * w)
loss = (h + x).sum()
loss.backward()
"""


@dataclass(frozen=True)
class Params:
    """The program and what it runs on."""

    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=6.0, memory_bytes=1 << 30), max_bytes=1 << 16)
    """A PyTorch program. `torch`, `nn`, `F` and `math` are there without import."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every random generator before the program starts."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Default device of new tensors."""

    def __post_init__(self) -> None:
        check(self)
