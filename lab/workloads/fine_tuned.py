"""A small network trained on one task, then fine-tuned on another, and the recipes by which people do that.

The network has two blocks of Linear, BatchNorm and ReLU, and a head. Task A has five clouds of points, task B three; its
inputs are shifted by 1 (near) or by 4 and turned (far).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

FEATURES, HIDDEN, CLASSES_A, CLASSES_B = 8, 32, 5, 3
BATCH, PRETRAINED_STEPS = 32, 200
Data = tuple[torch.Tensor, torch.Tensor]
"""Inputs (n, FEATURES) and classes (n,)."""


def clouds(seed: int, classes: int, *, count: int = 256, shift: float = 0.0, turned: bool = False) -> Data:
    """Points around as many centres as there are classes."""
    own = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=own)
    centres = torch.randn(classes, FEATURES, generator=torch.Generator().manual_seed(40 + classes)) * 1.5
    points = centres[labels] + torch.randn(count, FEATURES, generator=own) + shift
    return (points.flip(1) * -1 if turned else points), labels


@dataclass(frozen=True)
class Task:
    """What is learned second: rows for training and rows that are held back."""

    train: Data
    held_back: Data


def second_task(*, far: bool = False, count: int = 256) -> Task:
    """Task B."""
    shift = 4.0 if far else 1.0
    train, held = (clouds(seed, CLASSES_B, count=n, shift=shift, turned=far) for seed, n in ((2, count), (3, 256)))
    return Task(train, held)


class Network(nn.Module):
    """Two blocks and a head: 1,472 weights in the backbone, 33 a class in the head."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            *(nn.Linear(FEATURES, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU()),
            *(nn.Linear(HIDDEN, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU()),
        )
        self.head = nn.Linear(HIDDEN, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


@cache
def _pretrained() -> Network:
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        model = Network(CLASSES_A)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in train(model, optimizer, clouds(1, CLASSES_A), PRETRAINED_STEPS):
            pass
    return model


def pretrained() -> Network:
    """A copy of the network after 200 steps on task A."""
    return copy.deepcopy(_pretrained())


def with_new_head(seed: int = 7) -> Network:
    """The network with a fresh head for task B."""
    model = pretrained()
    model.head = new_head(seed)
    return model


def new_head(seed: int = 7) -> nn.Linear:
    """A head for task B as it is built."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(HIDDEN, CLASSES_B)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Data,
    steps: int,
    *,
    prepare: Callable[[int], None] = lambda step: None,
    set_to_none: bool = True,
    seed: int = 9,
) -> Iterator[float]:
    """Cross-entropy on random batches; yields the loss of each step. ``prepare(step)`` runs before each."""
    own = torch.Generator().manual_seed(seed)
    inputs, labels = data
    model.train()
    for step in range(steps):
        prepare(step)
        chosen = torch.randint(0, len(inputs), (BATCH,), generator=own)
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = F.cross_entropy(model(inputs[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        yield loss.item()


def accuracy(model: nn.Module, data: Data) -> float:
    """Share that is right, in eval mode; the mode is put back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.no_grad():
        share = float((model(data[0]).argmax(1) == data[1]).double().mean())
    for module, training in modes:
        module.training = training
    return share


@dataclass(frozen=True)
class Settings:
    """What every recipe takes."""

    optimizer: str = "Adam"
    lr: float = 1e-2
    backbone_lr_factor: float = 0.1
    weight_decay: float = 0.0
    momentum: float = 0.9
    norm_mode: str = "train"


@dataclass
class Prepared:
    """A network and its optimizer, ready to be trained."""

    model: Network
    optimizer: torch.optim.Optimizer
    prepare: Callable[[int], None] = field(default=lambda step: None)


def optimizer_of(parameters: object, settings: Settings) -> torch.optim.Optimizer:
    """Adam, AdamW or SGD over parameters or groups."""
    given: dict[str, float] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "SGD":
        return torch.optim.SGD(parameters, **given, momentum=settings.momentum)  # type: ignore[arg-type]
    kind = torch.optim.AdamW if settings.optimizer == "AdamW" else torch.optim.Adam
    return kind(parameters, **given)  # type: ignore[arg-type]


def _everything(settings: Settings) -> Prepared:
    model = with_new_head()
    return Prepared(model, optimizer_of(model.parameters(), settings))


def _groups(settings: Settings) -> Prepared:
    model = with_new_head()
    slow = {"params": list(model.backbone.parameters()), "lr": settings.lr * settings.backbone_lr_factor}
    return Prepared(model, optimizer_of([slow, {"params": list(model.head.parameters())}], settings))


def _frozen(settings: Settings) -> Prepared:
    model = with_new_head()
    model.backbone.requires_grad_(False)
    return Prepared(model, optimizer_of(model.head.parameters(), settings))


def _frozen_in_eval(settings: Settings) -> Prepared:
    ready = _frozen(settings)

    def prepare(step: int) -> None:
        ready.model.backbone.eval()

    ready.prepare = prepare
    return ready


def _stale(settings: Settings) -> Prepared:
    model = pretrained()
    optimizer = optimizer_of(model.parameters(), settings)
    model.head = new_head()
    return Prepared(model, optimizer)


def _stale_frozen(settings: Settings) -> Prepared:
    model = pretrained()
    model.backbone.requires_grad_(False)
    optimizer = optimizer_of([p for p in model.parameters() if p.requires_grad], settings)
    model.head = new_head()
    return Prepared(model, optimizer)


def _frozen_late(settings: Settings) -> Prepared:
    model = with_new_head()
    optimizer = optimizer_of(model.parameters(), settings)
    model.backbone.requires_grad_(False)
    return Prepared(model, optimizer)


RECIPES: dict[str, Callable[[Settings], Prepared]] = {
    "everything": _everything,
    "groups": _groups,
    "backbone frozen": _frozen,
    "frozen and BatchNorm in eval": _frozen_in_eval,
    "optimizer before the new head": _stale,
    "optimizer before the new head, backbone frozen": _stale_frozen,
    "frozen after the optimizer was built": _frozen_late,
}


class LowRank(nn.Module):
    """A frozen Linear plus ``scale · B A``: A is random (r, in), B is zero (out, r), so that it starts as the layer itself."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.scale * (x @ self.a.T) @ self.b.T

    def update(self) -> torch.Tensor:
        """What is added to the weight, (out, in)."""
        return (self.scale * self.b @ self.a).detach()

    def merged(self) -> nn.Linear:
        """One Linear with the update inside."""
        layer = copy.deepcopy(self.base)
        with torch.no_grad():
            layer.weight += self.update()
        return layer


def with_low_rank(rank: int) -> Network:
    """The network for task B with both Linear layers of the backbone adapted; the head trains as well."""
    model = with_new_head()
    model.backbone.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for at in (3, 0):
            layer = model.backbone[at]
            assert isinstance(layer, nn.Linear)
            model.backbone[at] = LowRank(layer, rank, float(rank))
    return model
