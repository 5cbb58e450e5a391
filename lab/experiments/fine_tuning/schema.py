"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Knob, Limits, check, knob
from lab.records.fine_tuning import FineTuningResult as Result
from lab.workloads.fine_tuned import RECIPES, Settings

__all__ = ["DEFAULT_PROGRAM", "VIEWS", "Params", "Result", "offered", "settings"]

VIEWS = ("moved", "midway", "share", "lora", "own")
DEFAULT_PROGRAM = """def make_model():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU())
    return nn.ModuleDict({"backbone": backbone, "head": nn.Linear(32, 5)})

def fine_tune(model):
    model["backbone"].requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    model["head"] = nn.Linear(32, 3)
    for step in range(20):
        x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))
        optimizer.zero_grad()
        F.cross_entropy(model["head"](model["backbone"](x)), y).backward()
        optimizer.step()
    return optimizer
"""


@dataclass(frozen=True)
class Params:
    """The recipe, or a program."""

    view: str = knob("moved", choices=VIEWS)
    """What moved under a recipe, what moves after freezing midway, how much to freeze, low rank, or a program of your own."""
    recipe: str = knob("optimizer before the new head", choices=tuple(RECIPES))
    """How the second task is learned: what is frozen, what the optimizer holds, in which order."""
    optimizer: str = knob("Adam", choices=("Adam", "AdamW", "SGD"))
    """What takes the steps."""
    lr: float = knob(1e-2, low=1e-6, high=1.0)
    """Learning rate."""
    backbone_lr_factor: float = knob(0.1, low=0.0, high=1.0)
    """Of the backbone's group, times the learning rate."""
    weight_decay: float = knob(0.0, low=0.0, high=1.0)
    """Of every group."""
    momentum: float = knob(0.9, low=0.0, high=0.99)
    """Of SGD."""
    set_to_none: bool = knob(True)
    """zero_grad removes gradients; off, it fills them with zeros."""
    rank: int = knob(4, low=1, high=32)
    """Of the low-rank update."""
    steps: int = knob(60, low=1, high=300)
    """Training steps on the second task."""
    far: bool = knob(False)
    """The second task is far from the first: its inputs are turned and shifted by 4."""
    rows: int = knob(256, low=16, high=1024)
    """Training rows of the second task."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=10.0, memory_bytes=1 << 30), max_bytes=1 << 16)
    """`make_model()` and `fine_tune(model)` that returns an optimizer, or any program that trains with one."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of every generator before your program starts."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Default device of new tensors in your program."""

    def __post_init__(self) -> None:
        check(self)


_TRAINING = ("optimizer", "lr", "weight_decay", "momentum")
USED = {
    "moved": ("recipe", *_TRAINING, "backbone_lr_factor", "set_to_none", "steps", "far", "rows"),
    "midway": (),
    "share": ("steps", "lr"),
    "lora": ("rank", "steps", "far", "rows"),
    "own": ("code", "seed"),
}
"""Knobs of each view; view and device always matter."""


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob where it matters for the view, the recipe and the optimizer."""
    if k.name not in ("view", "device", *USED[values["view"]]):
        return None
    if k.name == "backbone_lr_factor" and values["recipe"] != "groups":
        return None
    return None if k.name == "momentum" and values["optimizer"] != "SGD" else k


def settings(params: Params) -> Settings:
    """What the recipes read of it."""
    return Settings(params.optimizer, params.lr, params.backbone_lr_factor, params.weight_decay, params.momentum)
