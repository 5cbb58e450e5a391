"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Knob, Limits, check, knob
from lab.records.precision import PrecisionResult as Result
from lab.workloads.deep_classifier import ACTIVATIONS

__all__ = ["CLIPS", "DEFAULT_PROGRAM", "DTYPES", "FORMATS", "VIEWS", "Params", "Result", "offered"]

VIEWS = ("window", "scaler", "ops", "updates", "matmul")
FORMATS = ("fp16", "bf16", "fp8 e4m3", "fp8 e5m2", "fp32")
DTYPES = ("fp32", "bf16", "fp16")
CLIPS = ("off", "before unscale", "after")
DEFAULT_PROGRAM = """model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
x, y = torch.randn(16, 32), torch.randint(0, 10, (16,))

for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


@dataclass(frozen=True)
class Params:
    """A network and a format, or a program."""

    view: str = knob("window", choices=VIEWS)
    """Gradients against a format's window, a scaler at work, dtypes of a program's operations, lost updates, matrix products."""
    depth: int = knob(12, low=1, high=24)
    """Hidden layers of 64 units."""
    activation: str = knob("sigmoid", choices=tuple(ACTIVATIONS))
    """After each hidden layer."""
    format: str = knob("fp16", choices=FORMATS)
    """Whose window is laid over the gradients."""
    dtype: str = knob("fp16", choices=DTYPES)
    """Of autocast in the real backward pass and in training."""
    init_scale: float = knob(65536.0, low=1.0, high=2.0**30)
    """What the loss is multiplied by at first."""
    growth_interval: int = knob(20, low=1, high=2000, unit="steps")
    """Steps without a skip after which the scale doubles."""
    clip: str = knob("off", choices=CLIPS)
    """Gradients are clipped to norm 1: while they are scaled, or after unscale_."""
    lr: float = knob(0.1, low=1e-6, high=1.0)
    """Learning rate of SGD with momentum 0.9."""
    bad_step: int | None = knob(None, low=0, high=299)
    """The batch of this step is ten thousand times too large."""
    nan: bool = knob(False)
    """The loss is NaN in every step."""
    steps: int = knob(60, low=10, high=300)
    """Training steps."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=10.0, memory_bytes=1 << 30), max_bytes=1 << 16)
    """A program with autocast, a scaler, or tensors of few bits."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every generator before your program starts."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Where it is measured."""

    def __post_init__(self) -> None:
        check(self)


_NETWORK = ("depth", "activation")
USED = {
    "window": (*_NETWORK, "format", "dtype", "init_scale"),
    "scaler": ("dtype", "init_scale", "growth_interval", "clip", "lr", "bad_step", "nan", "steps"),
    "ops": ("code", "seed"),
    "updates": (),
    "matmul": (),
}
"""Knobs of each view; view and device always matter."""


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob where it matters for the view."""
    return k if k.name in ("view", "device", *USED[values["view"]]) else None
