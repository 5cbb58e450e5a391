"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Knob, Limits, check, knob
from lab.records.resume import ResumeResult as Result

__all__ = ["DEFAULT_PROGRAM", "LEAVE_OUT", "NAMES", "ORDERS", "VIEWS", "Params", "Result", "offered"]

VIEWS = ("curve", "file", "keys", "loading", "program")
LEAVE_OUT: Mapping[str, tuple[str, ...]] = {
    "nothing": (),
    **{name: (name,) for name in ("model", "buffers", "optimizer", "scheduler")},
    "optimizer and scheduler": ("optimizer", "scheduler"),
    **{name: (name,) for name in ("scaler", "ema", "sampler")},
    "torch generator": ("torch_rng",),
    "python generator": ("python_rng",),
    "gradients": ("gradients",),
}
"""Choice -> the parts that are not taken from the file."""
NAMES = ("as in the model", "module.", "_orig_mod.", "_orig_mod.module.", "another head", "one layer less")
ORDERS = ("as saved", "reversed", "layers swapped")
DEFAULT_PROGRAM = """def save(run):
    return {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "scheduler": run.scheduler.state_dict(),
        "micro": run.micro,
    }

def load(run, file):
    saved = torch.load(file)
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.scheduler.load_state_dict(saved["scheduler"])
    run.micro = saved["micro"]
"""


@dataclass(frozen=True)
class Params:
    """The training that is stopped, what is lost on the way, or a program."""

    view: str = knob("curve", choices=VIEWS)
    """The two loss curves, what a file holds, which names and positions match, what loads safely, or a program of your own."""
    leave_out: str = knob("optimizer", choices=tuple(LEAVE_OUT))
    """What is not taken from the file; the run that loads it was built anew."""
    stop_after: int = knob(31, low=1, high=60, unit="steps")
    """Micro-steps before the stop: one forward and backward each."""
    accumulate: int = knob(2, low=1, high=4)
    """Micro-steps whose gradients are added before the optimizer steps."""
    optimizer: str = knob("AdamW", choices=("AdamW", "SGD"))
    """SGD has momentum 0.9."""
    dropout: float = knob(0.2, low=0.0, high=0.9, step=0.05)
    """Share of activations that is dropped in training: draws from torch's generator."""
    names: str = knob("module.", choices=NAMES)
    """How the names in the file differ from the model's."""
    strict: bool = knob(False)
    """load_state_dict refuses what does not match."""
    meta: bool = knob(False)
    """The model was built on the meta device: shapes without memory."""
    assign: bool = knob(False)
    """The file's tensors take the place of the model's instead of being copied into them."""
    order: str = knob("layers swapped", choices=ORDERS)
    """In which order the optimizer that loads the state got its parameters."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=10.0, memory_bytes=1 << 30), max_bytes=1 << 16)
    """`save(run)` and `load(run, file)` for the training of this page, or any program that saves and loads."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every generator before the training is built."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Where the training runs."""

    def __post_init__(self) -> None:
        check(self)


_TRAINING = ("stop_after", "accumulate", "optimizer", "dropout", "seed")
USED = {
    "curve": ("leave_out", *_TRAINING),
    "file": _TRAINING,
    "keys": ("names", "strict", "meta", "assign", "order"),
    "loading": (),
    "program": ("code", *_TRAINING),
}
"""Knobs of each view; view and device always matter."""


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob where it matters for the view."""
    return k if k.name in ("view", "device", *USED[values["view"]]) else None
