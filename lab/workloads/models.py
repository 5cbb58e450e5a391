"""The four models that the memory and the profiler page train: small enough to read, made of the parts people use.

Each comes with a batch and a loss. Shapes: B batch, T sequence, D width, C channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY = 1000
CLASSES = 10
HEAD_WIDTH = 64
"""Width of one attention head: 64 in GPT-2."""
IMAGE = 32
"""Height and width of the images of the CNN."""


@dataclass
class Task:
    """A model with one batch. ``loss()`` runs the forward and returns a scalar with a graph."""

    model: nn.Module
    inputs: tuple[torch.Tensor, ...]
    target: torch.Tensor
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def loss(self) -> torch.Tensor:
        return self.criterion(self.model(*self.inputs), self.target)


class Blocks(nn.ModuleList):
    """Blocks run one after the other, some of them under activation checkpointing.

    ``every``: checkpoint segments of so many blocks; 0 for none. ``reentrant``: the older form of checkpoint.
    """

    every = 0
    reentrant = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.every or not torch.is_grad_enabled():
            return self._run(0, len(self), x)
        for start in range(0, len(self), self.every):
            stop = min(start + self.every, len(self))
            x = checkpoint(self._run, start, stop, x, use_reentrant=self.reentrant)
        return x

    def _run(self, start: int, stop: int, x: torch.Tensor) -> torch.Tensor:
        for block in self[start:stop]:
            x = block(x)
        return x


class MLP(nn.Module):
    """(B, D) -> (B, CLASSES)."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.blocks = Blocks([nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)])
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


class CNN(nn.Module):
    """(B, 3, IMAGE, IMAGE) -> (B, CLASSES)."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = Blocks(
            [
                nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
                for _ in range(layers)
            ]
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.stem(x))  # (B, C, IMAGE, IMAGE)
        return self.head(x.mean((2, 3)))


class GPTBlock(nn.Module):
    """Pre-norm transformer block with causal attention; (B, T, D) -> (B, T, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // HEAD_WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, heads, T, D / heads)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    """Token ids (B, T) -> logits (B, T, VOCABULARY)."""

    def __init__(self, layers: int, width: int, seq: int, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(seq, width)
        self.blocks = Blocks([GPTBlock(width) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.token(ids) + self.position(places))))


class LSTM(nn.Module):
    """(B, T, D) -> (B, CLASSES)."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def build(model: str, *, layers: int, width: int, batch: int, seq: int) -> Task:
    """``mlp``, ``cnn``, ``gpt`` or ``lstm`` with random data, on the default device. ``width`` of gpt: a multiple of its heads."""
    if model == "gpt":
        ids = torch.randint(VOCABULARY, (batch, seq + 1))
        return Task(GPT(layers, width, seq), (ids[:, :-1],), ids[:, 1:], _token_loss)
    target = torch.randint(CLASSES, (batch,))
    if model == "cnn":
        return Task(CNN(layers, width), (torch.randn(batch, 3, IMAGE, IMAGE),), target, F.cross_entropy)
    if model == "lstm":
        return Task(LSTM(layers, width), (torch.randn(batch, seq, width),), target, F.cross_entropy)
    return Task(MLP(layers, width), (torch.randn(batch, width),), target, F.cross_entropy)


def _token_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())
