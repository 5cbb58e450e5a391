"""The models that the memory and the profiler page train: small enough to read, made of the parts people use.

Each comes with a batch and a loss. Shapes: B batch, T sequence, D width, C channels. What stands in ``known_models`` is
built like published models, to the parameter.
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
    """Pre-norm transformer block, causal unless told otherwise; (B, T, D) -> (B, T, D).

    ``kv_heads`` < ``heads``: groups of heads share one key and one value, which are repeated before the product.
    ``activation``: a function of ``torch.nn.functional``; ``swiglu`` is silu(gate) · up.
    """

    def __init__(
        self,
        width: int,
        heads: int = 0,
        kv_heads: int = 0,
        mlp_ratio: float = 4,
        activation: str = "gelu",
        causal: bool = True,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.heads = heads or max(1, width // HEAD_WIDTH)
        self.kv_heads, self.head_width = kv_heads or self.heads, width // self.heads
        self.gated, hidden = activation == "swiglu", round(mlp_ratio * width)
        self.activation = F.silu if self.gated else getattr(F, activation)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, width + 2 * self.kv_heads * self.head_width)
        self.out = nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, (1 + self.gated) * hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(self.qkv(self.norm1(x)))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        y = self.fc1(self.norm2(x))
        if self.gated:
            gate, up = y.chunk(2, -1)
            return x + self.fc2(self.activation(gate) * up)
        return x + self.fc2(self.activation(y))

    def split(self, qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values, each (B, heads, T, D / heads)."""
        batch, length, _ = qkv.shape
        if self.kv_heads == self.heads:
            return qkv.view(batch, length, 3, self.heads, self.head_width).permute(2, 0, 3, 1, 4).unbind()
        parts = qkv.view(batch, length, -1, self.head_width).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.kv_heads, self.kv_heads), 1)
        times = self.heads // self.kv_heads
        return q, k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)


class GPT(nn.Module):
    """Token ids (B, T) -> logits (B, T, vocabulary). ``tied``: the head reads the embedding's own weight."""

    def __init__(
        self, layers: int, width: int, positions: int, vocabulary: int = VOCABULARY, tied: bool = False, **block
    ) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = Blocks([GPTBlock(width, **block) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.token.weight

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


@dataclass(frozen=True)
class Language:
    """What a language model has beside depth and width. 0: as usual for its kind."""

    vocabulary: int = VOCABULARY
    positions: int = 0
    """Rows of the table of learned positions; 0: as many as tokens."""
    heads: int = 0
    kv_heads: int = 0
    mlp_ratio: float = 4.0
    activation: str = "gelu"
    tied: bool = False


def build(model: str, *, layers: int, width: int, batch: int, seq: int, language: Language = Language()) -> Task:
    """``mlp``, ``cnn``, ``gpt`` or ``lstm`` with random data, on the default device. ``width`` of gpt: a multiple of its heads."""
    if model == "gpt":
        wanted = {name: getattr(language, name) for name in ("heads", "kv_heads", "mlp_ratio", "activation", "tied")}
        made = GPT(layers, width, language.positions or seq, language.vocabulary, **wanted)
        return Task(made, *token_batch(language.vocabulary, batch, seq), token_loss)
    target = torch.randint(CLASSES, (batch,))
    if model == "cnn":
        return Task(CNN(layers, width), (torch.randn(batch, 3, IMAGE, IMAGE),), target, F.cross_entropy)
    if model == "lstm":
        return Task(LSTM(layers, width), (torch.randn(batch, seq, width),), target, F.cross_entropy)
    return Task(MLP(layers, width), (torch.randn(batch, width),), target, F.cross_entropy)


def token_batch(vocabulary: int, batch: int, seq: int) -> tuple[tuple[torch.Tensor], torch.Tensor]:
    """Random ids (B, T), and the ids that follow them."""
    ids = torch.randint(vocabulary, (batch, seq + 1))
    return (ids[:, :-1],), ids[:, 1:]


def token_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy over all tokens."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())
