"""A deep classifier with small gradients: as many Linear layers of 64 as asked for, one activation, ten classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

WIDTH, CLASSES, BATCH = 64, 10, 256
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU,
}  # fmt: skip


def deep_classifier(depth: int, activation: str) -> nn.Sequential:
    """``depth`` blocks and a head, seeded. The generator is put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [nn.Linear(WIDTH, WIDTH), ACTIVATIONS[activation]()]
        return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


def a_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (BATCH, WIDTH) and classes (BATCH,)."""
    own = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, WIDTH, generator=own), torch.randint(0, CLASSES, (BATCH,), generator=own)
