"""A small task that really trains: three spiral arms, a network with BatchNorm and Dropout, some 0.3 s on one core."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

ARMS = 3


def spirals(points: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(points, 2) positions and (points,) arm numbers, shuffled; ``points`` is rounded down to a multiple of 3."""
    generator = torch.Generator().manual_seed(seed)
    arm = torch.arange(ARMS).repeat_interleave(points // ARMS)
    radius = torch.rand(len(arm), generator=generator).sqrt()
    angle = 1.5 * math.pi * radius + arm * (2 * math.pi / ARMS) + 0.25 * torch.randn(len(arm), generator=generator)
    order = torch.randperm(len(arm), generator=generator)
    return 5 * torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)[order] + 2, arm[order]


class SpiralNet(nn.Module):
    """Two hidden layers, each with BatchNorm and Dropout. (N, 2) -> (N, 3)."""

    def __init__(self, p: float = 0.3, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(2, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(p)),
            *(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(p)),
            nn.Linear(width, ARMS),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def trained_net(p: float, seed: int, device: str = "cpu", steps: int = 200) -> SpiralNet:
    """The net after ``steps`` steps of Adam on batches of 128; in train mode."""
    torch.manual_seed(seed)
    net = SpiralNet(p).to(device)
    inputs, arms = (part.to(device) for part in spirals(1536, seed))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(steps):
        batch = torch.arange(128, device=device).add(128 * step) % len(arms)
        loss = F.cross_entropy(net(inputs[batch]), arms[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


@torch.no_grad()
def evaluate(net: nn.Module, inputs: torch.Tensor, arms: torch.Tensor, batch: int) -> tuple[float, float]:
    """(mean cross-entropy, accuracy) over the whole set, in batches, in whatever mode the net is."""
    logits = torch.cat([net(part) for part in inputs.split(batch)])
    return F.cross_entropy(logits, arms).item(), (logits.argmax(1) == arms).double().mean().item()
