"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Knob, Limits, check, knob
from lab.records.serving import SkewResult as Result
from lab.workloads.serving_paths import SKEWS

__all__ = ["DEFAULT_PROGRAM", "GOLDEN", "VIEWS", "Params", "Result", "offered"]

VIEWS = ("stages", "power", "drift", "own")
GOLDEN = ("varied", "one row repeated", "all zeros")
DEFAULT_PROGRAM = """mean, std = torch.tensor([48.0, 55000.0]), torch.tensor([18.0, 26000.0])
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
for _ in range(20):
    net(torch.randn(64, 2))
net.eval()

def train_path(rows):
    x = torch.tensor([[row["age"], row["income"]] for row in rows])
    z = (x - mean) / std
    logits = net(z)
    return {"features": x, "normalised": z, "logits": logits, "probabilities": logits.softmax(1)}

def serve_path(rows):
    x = torch.tensor([[row["age"], row["income"]] for row in rows])
    z = (x - x.mean(0)) / x.std(0)
    logits = net(z)
    return {"features": x, "normalised": z, "logits": logits, "probabilities": logits.softmax(1)}
"""


@dataclass(frozen=True)
class Params:
    """Which departure, on which golden rows; or two paths of your own."""

    view: str = knob("stages", choices=VIEWS)
    """The two paths stage by stage, what the golden rows can show at all, skew against drift, or two paths of your own."""
    skew: str = knob("train mode", choices=tuple(SKEWS))
    """What serving does differently."""
    golden_rows: int = knob(64, low=1, high=1024)
    """Rows that go through both paths."""
    golden: str = knob("varied", choices=GOLDEN)
    """Which rows: a golden set must be able to fail."""
    tolerance: float = knob(1e-5, low=0.0, high=1.0)
    """Largest gap that counts as agreeing, in standard deviations of the stage. Names and whole numbers must be equal."""
    age_shift: float = knob(25.0, low=0.0, high=60.0, unit="years")
    """How much older the live customers are than those of training."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=10.0, memory_bytes=1 << 30), max_bytes=1 << 16)
    """`train_path(rows)` and `serve_path(rows)` that return dicts of stages, or two versions of a model and `rows`."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed before each path runs, and of the golden rows."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Default device of new tensors in your program."""

    def __post_init__(self) -> None:
        check(self)


USED = {
    "stages": ("skew", "golden_rows", "golden", "tolerance", "seed"),
    "power": ("golden_rows", "golden", "tolerance", "seed"),
    "drift": ("skew", "golden_rows", "age_shift", "tolerance", "seed"),
    "own": ("code", "golden_rows", "tolerance", "seed"),
}
"""Knobs of each view; view and device always matter."""


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob where it matters for the view."""
    return k if k.name in ("view", "device", *USED[values["view"]]) else None
