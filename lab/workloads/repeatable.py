"""A small training that can be run again with one thing changed: seed, threads, layout, dtype, order, batch, checkpointing, ..."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

ROWS, BATCH, WORDS = 64, 16, 40
CHANGES = (
    *("nothing", "seed", "threads", "deterministic", "dtype", "autocast", "layout", "order", "batch", "accumulation"),
    *("oneDNN", "checkpoint", "extra draw", "optimizer form", "one ulp"),
)
"""What the second run may do differently."""
EXTRA_DRAW_STEP = 3


class Reader(nn.Module):
    """A picture of (3, 8, 8) and a word, read together: convolution, embedding, two blocks with LayerNorm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.words = nn.Embedding(WORDS, 64)
        self.look = nn.Linear(512, 64)
        self.norm = nn.LayerNorm(64)
        self.drop = nn.Dropout(0.1)
        self.inner = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
        self.head = nn.Linear(64, 5)
        self.recompute = False

    def forward(self, pictures: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        seen = self.look(F.relu(self.conv(pictures)).flatten(1))
        h = self.norm(seen + self.words(words))
        h = self.drop(h)
        inner = checkpoint(self.inner, h, use_reentrant=False) if self.recompute else self.inner(h)
        return self.head(h + inner)


@dataclass(frozen=True)
class Data:
    """Pictures (ROWS, 3, 8, 8), words (ROWS,), classes (ROWS,)."""

    pictures: torch.Tensor
    words: torch.Tensor
    classes: torch.Tensor


def data() -> Data:
    """From a generator of its own."""
    own = torch.Generator().manual_seed(17)
    return Data(
        torch.randn(ROWS, 3, 8, 8, generator=own),
        torch.randint(0, WORDS, (ROWS,), generator=own),
        torch.randint(0, 5, (ROWS,), generator=own),
    )


@dataclass
class Training:
    """Built under a change; ``step(k)`` does one, ``named`` tells what happens now to whoever records."""

    model: Reader
    optimizer: torch.optim.Optimizer
    batches: Data
    change: str
    told: Callable[[str], None]

    def step(self, at: int) -> float:
        """One step; its loss."""
        first = at * BATCH % ROWS
        rows = torch.arange(first, first + BATCH)
        if self.change == "order":
            rows = rows.flip(0)
        if self.change == "batch":
            rows = rows[: BATCH // 2]
        if self.change == "extra draw" and at == EXTRA_DRAW_STEP:
            self.told(f"step {at} extra draw")
            torch.rand(1)
        self.optimizer.zero_grad()
        parts = rows.chunk(2) if self.change == "accumulation" else (rows,)
        total = 0.0
        for part in parts:
            total += self._one(part, at, len(parts))
        self.told(f"step {at} optimizer")
        self.optimizer.step()
        return total

    def _one(self, rows: torch.Tensor, at: int, parts: int) -> float:
        self.told(f"step {at} forward")
        pictures = self.batches.pictures[rows]
        if self.change == "layout":
            pictures = pictures.contiguous(memory_format=torch.channels_last)
        if self.change == "dtype":
            pictures = pictures.double()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.change == "autocast"):
            loss = F.cross_entropy(self.model(pictures, self.batches.words[rows]), self.batches.classes[rows]) / parts
        self.told(f"step {at} backward")
        loss.backward()
        return float(loss.detach())


def built(change: str, seed: int, told: Callable[[str], None] = lambda place: None, *, lr: float = 1e-2) -> Training:
    """The training under ``change``. Seeds torch's generator."""
    torch.manual_seed(seed + 1 if change == "seed" else seed)
    model = Reader()
    if change == "one ulp":
        with torch.no_grad():
            weight = model.conv.weight.view(-1)
            weight[0] = torch.nextafter(weight[0], torch.tensor(9.0))
    if change == "dtype":
        model = model.double()
    if change == "layout":
        model.conv.weight.data = model.conv.weight.data.contiguous(memory_format=torch.channels_last)
    model.recompute = change == "checkpoint"
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, foreach=change != "optimizer form")
    return Training(model, optimizer, data(), change, told)


@contextlib.contextmanager
def circumstances(change: str) -> Iterator[None]:
    """Threads, flags and backends of the change; outside, everything is as it was."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn, onednn = torch.is_deterministic_algorithms_warn_only_enabled(), torch.backends.mkldnn.enabled
    try:
        if change == "threads":
            torch.set_num_threads(2)
        if change == "deterministic":
            torch.use_deterministic_algorithms(True)
        if change == "oneDNN":
            torch.backends.mkldnn.enabled = False
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict, warn_only=warn)
        torch.backends.mkldnn.enabled = onednn
