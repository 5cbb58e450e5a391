"""Models as they were published, to the parameter: Llama, ViT and ResNet-50; GPT-2 is ``models.GPT`` with its own sizes.

Sources: Radford et al. 2019 (GPT-2), Touvron et al. 2023 (Llama), Dosovitskiy et al. 2020 (ViT), He et al. 2015 (ResNet).
Shapes: B batch, T tokens, D width, C channels.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from lab.workloads.models import Blocks, GPTBlock, Language, Task, token_batch, token_loss

PICTURE = 224
"""Height and width of an image of ImageNet."""
PATCH = 16
LABELS = 1000
"""Classes of ImageNet."""
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""ResNet-50: blocks of each stage and their inner channels."""

_GPT2: dict[str, Any] = {"model": "gpt", "vocabulary": 50257, "positions": 1024, "tied": True, "seq": 1024}
_LLAMA: dict[str, Any] = {"model": "llama", "vocabulary": 32000, "seq": 2048}

KNOWN: dict[str, dict[str, Any]] = {
    "gpt2": _GPT2 | {"layers": 12, "width": 768, "heads": 12},
    "gpt2-medium": _GPT2 | {"layers": 24, "width": 1024, "heads": 16},
    "gpt2-large": _GPT2 | {"layers": 36, "width": 1280, "heads": 20},
    "gpt2-xl": _GPT2 | {"layers": 48, "width": 1600, "heads": 25},
    "llama-7b": _LLAMA | {"layers": 32, "width": 4096, "heads": 32, "mlp_ratio": 11008 / 4096},
    "llama2-70b": _LLAMA
    | {"layers": 80, "width": 8192, "heads": 64, "kv_heads": 8, "mlp_ratio": 28672 / 8192, "seq": 4096},
    "vit-b-16": {"model": "vit", "layers": 12, "width": 768, "heads": 12},
    "resnet-50": {"model": "resnet50"},
}
"""Known models as values of knobs. ``seq``: the longest text that each was trained on."""


class RMSNorm(nn.Module):
    """x / √(mean(x²) + ε) · weight, step by step as in the published code."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class LlamaBlock(nn.Module):
    """RMSNorm, attention with rotated queries and keys, gated MLP; no biases. (B, T, D) -> (B, T, D)."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.gated = heads, kv_heads, activation == "swiglu"
        self.activation = F.silu if self.gated else getattr(F, activation)
        narrow = width // heads * kv_heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, size, bias=False) for size in (width, narrow, narrow))
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False) if self.gated else None
        self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        counts = (self.heads, self.kv_heads, self.kv_heads)
        parts = zip((self.q, self.k, self.v), counts, strict=True)
        q, k, v = (linear(y).unflatten(-1, (count, -1)).transpose(1, 2) for linear, count in parts)
        q, k, times = rotated(q), rotated(k), self.heads // self.kv_heads
        if times > 1:
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, heads, T, D / heads)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        hidden = self.activation(self.gate(y)) * self.up(y) if self.gate else self.activation(self.up(y))
        return x + self.down(hidden)


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions: pairs of features turned by an angle that grows with the place. (B, heads, T, D / heads)."""
    length, width = x.shape[-2:]
    speed = 10000 ** (-torch.arange(0, width, 2, device=x.device) / width)
    angle = torch.outer(torch.arange(length, device=x.device), speed).repeat(1, 2).to(x.dtype)  # (T, D / heads)
    first, second = x.chunk(2, -1)
    return x * angle.cos() + torch.cat((-second, first), -1) * angle.sin()


class Llama(nn.Module):
    """Token ids (B, T) -> logits (B, T, vocabulary)."""

    def __init__(self, layers: int, width: int, heads: int, kv_heads: int, hidden: int, activation: str, vocabulary: int, tied: bool) -> None:  # fmt: skip
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.blocks = Blocks([LlamaBlock(width, heads, kv_heads, hidden, activation) for _ in range(layers)])
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.token(ids))))


class ViT(nn.Module):
    """Images (B, 3, PICTURE, PICTURE) cut into patches -> (B, LABELS), read from a token of its own."""

    def __init__(self, layers: int, width: int, heads: int, mlp_ratio: float, activation: str) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, (PICTURE // PATCH) ** 2 + 1, width))
        self.blocks = Blocks([GPTBlock(width, heads, 0, mlp_ratio, activation, causal=False) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LABELS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)  # (B, 196, D)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions, each with BatchNorm, beside a residual path."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        out = 4 * inner
        self.conv1, self.bn1 = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = None
        if stride > 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (self.shortcut(x) if self.shortcut else x), inplace=True)


class ResNet50(nn.Module):
    """Images (B, 3, PICTURE, PICTURE) -> (B, LABELS)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.blocks, channels = Blocks(), 64
        for stage, (count, inner) in enumerate(STAGES):
            for number in range(count):
                self.blocks.append(Bottleneck(channels, inner, 2 if stage and not number else 1))
                channels = 4 * inner
        self.head = nn.Linear(channels, LABELS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn(self.conv(x)), inplace=True), 3, 2, 1)  # (B, 64, 56, 56)
        return self.head(self.blocks(x).mean((2, 3)))


def build(model: str, *, layers: int, width: int, batch: int, seq: int, language: Language) -> Task:
    """``llama``, ``vit`` or ``resnet50`` with random data, on the default device."""
    heads = language.heads or max(1, width // 64)
    if model == "llama":
        hidden = round(language.mlp_ratio * width)
        kv_heads = language.kv_heads or heads
        made = Llama(layers, width, heads, kv_heads, hidden, language.activation, language.vocabulary, language.tied)
        return Task(made, *token_batch(language.vocabulary, batch, seq), token_loss)
    net = ResNet50() if model == "resnet50" else ViT(layers, width, heads, language.mlp_ratio, language.activation)
    images, labels = torch.randn(batch, 3, PICTURE, PICTURE), torch.randint(LABELS, (batch,))
    return Task(net, (images,), labels, F.cross_entropy)
