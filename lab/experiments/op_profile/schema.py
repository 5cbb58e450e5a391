"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Knob, Limits, ParamsError, check, knob
from lab.records.profiling import ProfileResult
from lab.workloads.models import HEAD_WIDTH
from lab.workloads.optimizers import OPTIMIZERS

TRAPS = (
    "none", "clocks", "warm_up", "self_total", "inside_with", "nested", "stacks", "schedule", "shapes", "memory",
    "tiny_operations", "sort_key", "export_twice", "no_device", "step_rows", "backward_rows", "labels",
)  # fmt: skip
MOST_PARAMETERS = 60_000_000
"""Of one of the lab's models: parameters, gradients and Adam state are then 1 GB."""


@dataclass(frozen=True)
class Params:
    """The step to profile."""

    model: str = knob("gpt", choices=("mlp", "cnn", "gpt", "lstm", "own"))
    """What is trained. own: your program defines `model` and `batch`."""
    layers: int = knob(2, low=1, high=48)
    """Blocks of the model."""
    width: int = knob(128, low=8, high=4096)
    """Features; channels of the cnn. gpt: up to 127, or a multiple of its heads of 64."""
    batch: int = knob(8, low=1, high=4096)
    """Samples in a step."""
    seq: int = knob(64, low=1, high=1024)
    """Tokens or time steps of gpt and lstm."""
    steps: int = knob(5, low=1, high=30)
    """Steps with the profiler, and as many without."""
    warmup: int = knob(3, low=0, high=20)
    """Steps after the first that are drawn but do not count."""
    precision: str = knob("fp32", choices=("fp32", "bf16_autocast", "fp16_autocast", "bf16"))
    """bf16: parameters too. Autocast keeps them in fp32."""
    optimizer: str = knob("adam", choices=tuple(OPTIMIZERS))
    """Update rule."""
    optimizer_impl: str = knob("forloop", choices=("forloop", "foreach", "fused"))
    """One parameter after the other, lists of them, or one kernel."""
    set_to_none: bool = knob(True)
    """zero_grad drops the gradients instead of filling them with zeros."""
    compile: bool = knob(False)
    """torch.compile the model."""
    channels_last: bool = knob(False)
    """Memory format of images: matters for the cnn only."""
    workers: int = knob(0, low=0, high=8)
    """Processes of the DataLoader."""
    pin_memory: bool = knob(False)
    """Page-locked batches. Matters with a CUDA device only."""
    decode_us: int = knob(0, low=0, high=20_000, unit="µs")
    """Work in Python for each sample, which stands for reading and decoding it."""
    group_by: str = knob("name", choices=("name", "shape", "module", "stack"))
    """What one row of the operator table is."""
    trap: str = knob("none", choices=TRAPS)
    """A way to read a profile wrong, tried beside the run."""
    code: str = knob("", program=Limits(wall_s=30.0, memory_bytes=2 << 30), max_bytes=1 << 16)
    """For model = own: a program that defines `model` and `batch`, and perhaps `loss(model, batch)`."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every random generator."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Where the step runs."""

    def __post_init__(self) -> None:
        check(self)
        heads = max(1, self.width // HEAD_WIDTH)
        if self.model == "gpt" and self.width % heads:
            near = self.width // HEAD_WIDTH * HEAD_WIDTH
            raise ParamsError(
                f"width = {self.width} cannot be cut into {heads} heads; take {near} or {near + HEAD_WIDTH}"
            )
        weights = {"mlp": 1, "cnn": 9, "gpt": 12, "lstm": 8}.get(self.model, 0) * self.layers * self.width**2
        if weights > MOST_PARAMETERS:
            raise ParamsError(
                f"{self.model} with layers = {self.layers} and width = {self.width} has some {weights / 1e6:,.0f} million "
                f"parameters; the limit is {MOST_PARAMETERS / 1e6:,.0f} million. Take fewer layers or less width"
            )
        if self.model == "own" and self.compile:
            raise ParamsError(
                "compile = true needs a compiler, which a typed program has not. Choose one of the other models"
            )


_NOT_OWN = ("layers", "width", "batch", "seq", "compile", "channels_last", "workers", "pin_memory", "decode_us")


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The visitor's own model brings its sizes and its batch; the others need no program."""
    own = values["model"] == "own"
    if k.name == "code":
        return k if own else None
    if own and k.name in _NOT_OWN:
        return None
    if k.name == "seq" and values["model"] not in ("gpt", "lstm"):
        return None
    if k.name == "channels_last" and values["model"] != "cnn":
        return None
    return k


Result = ProfileResult
