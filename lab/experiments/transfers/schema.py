"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Knob, Limits, check, knob
from lab.records.transfers import TransferResult as Result

__all__ = ["DEFAULT_PROGRAM", "VIEWS", "Params", "Result", "offered"]

VIEWS = ("waits", "copies", "overlap")
DEFAULT_PROGRAM = """model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total = 0.0

for step in range(20):
    x = torch.randn(64, 16)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    total += loss.item()
    if loss > 10:
        print("large loss")
    hard = x[x.sum(1) > 0]

print(total / 20)
"""


@dataclass(frozen=True)
class Params:
    """A program, or copies."""

    view: str = knob("waits", choices=VIEWS)
    """The lines where a program waits, copies by kind and size, or copies beside kernels on a GPU."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=10.0, memory_bytes=1 << 30), max_bytes=1 << 16)
    """A program: its waits are counted with their lines."""
    chunks: int = knob(8, low=1, high=64)
    """Parts in which a copy to the device and the work on it are split."""
    read_early: bool = knob(True)
    """Read the target of a copy to the host before it has ended."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every generator before your program starts."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Default device of new tensors in your program; where copies are measured."""

    def __post_init__(self) -> None:
        check(self)


USED = {"waits": ("code", "seed"), "copies": (), "overlap": ("chunks", "read_early")}
"""Knobs of each view; view and device always matter."""


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob where it matters for the view."""
    return k if k.name in ("view", "device", *USED[values["view"]]) else None
