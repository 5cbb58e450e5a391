"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.contract import Knob, Limits, check, knob
from lab.records.reproducing import ReproResult as Result
from lab.workloads.repeatable import CHANGES

__all__ = ["DEFAULT_PROGRAM", "PROGRAM_CHANGES", "VIEWS", "Params", "Result", "offered"]

VIEWS = ("difference", "program", "host", "levels", "sources")
PROGRAM_CHANGES = ("nothing", "seed", "deterministic", "oneDNN", "extra draw")
DEFAULT_PROGRAM = """model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randint(0, 2, (32,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


@dataclass(frozen=True)
class Params:
    """What the second run does differently, or a program."""

    view: str = knob("difference", choices=VIEWS)
    """Two recordings side by side, a program of your own run twice, this host's operations, levels of sameness, what is pinned."""
    change: str = knob("threads", choices=CHANGES)
    """What the second run does differently."""
    steps: int = knob(6, low=1, high=20)
    """Training steps of both runs."""
    repeats: int = knob(20, low=2, high=100)
    """Calls or runs that are compared with each other."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=15.0, memory_bytes=1 << 30), max_bytes=1 << 16)
    """A program that is run twice: what differs, at which line, and which lines draw random numbers."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every generator before each run."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Default device of new tensors in your program."""

    def __post_init__(self) -> None:
        check(self)


USED = {
    "difference": ("change", "steps", "seed"),
    "program": ("change", "code", "repeats", "seed"),
    "host": ("repeats",),
    "levels": ("change", "steps", "seed"),
    "sources": (),
}
"""Knobs of each view; view and device always matter."""


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob where it matters for the view; a program has the changes that one process can make."""
    if k.name not in ("view", "device", *USED[values["view"]]):
        return None
    if k.name == "change" and values["view"] == "program":
        return replace(k, choices=PROGRAM_CHANGES, default="nothing")
    return k
