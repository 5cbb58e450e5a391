"""Models whose behaviour depends on train() and eval(), each in its own way."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def small_net(p: float) -> nn.Sequential:
    """Linear, BatchNorm, ReLU, Dropout, Linear. (N, 8) -> (N, 4)."""
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 4))


class ConvNet(nn.Module):
    """Two convolutions with BatchNorm and Dropout2d, and a functional dropout that nobody told about eval().

    (N, 3, 8, 8) -> (N, 5).
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.drop = nn.Dropout2d(p)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(F.relu(self.norm1(self.conv1(x))))
        x = F.relu(self.norm2(self.conv2(x))).mean((2, 3))
        return self.head(F.dropout(x, self.p))  # training defaults to True


class Attention(nn.Module):
    """One transformer block with attention dropout that ignores eval(). (N, T, 16) -> (N, 5)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(p), nn.Linear(32, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)  # 3 of (N, heads, T, 8)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p)  # has no eval mode
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return self.head((x + self.mlp(self.norm2(x))).mean(1))


def convnet(p: float, batch: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """(model, inputs, integer targets) from the global generator."""
    return ConvNet(p), torch.randn(batch, 3, 8, 8), torch.randint(0, 5, (batch,))


def transformer(p: float, batch: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """(model, inputs, integer targets) from the global generator."""
    return Attention(p), torch.randn(batch, 6, 16), torch.randint(0, 5, (batch,))
