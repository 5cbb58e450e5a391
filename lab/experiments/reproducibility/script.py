"""The measurement on its own, in plain PyTorch; the headline number is printed last."""

from __future__ import annotations

from lab.experiments.reproducibility.programs import HEADLINES
from lab.experiments.reproducibility.schema import Params

_TRAINING = """import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.words = nn.Embedding(40, 64)
        self.look = nn.Linear(512, 64)
        self.norm = nn.LayerNorm(64)
        self.drop = nn.Dropout(0.1)
        self.inner = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
        self.head = nn.Linear(64, 5)
        self.recompute = False

    def forward(self, pictures, words):
        h = self.drop(self.norm(self.look(F.relu(self.conv(pictures)).flatten(1)) + self.words(words)))
        return self.head(h + (checkpoint(self.inner, h, use_reentrant=False) if self.recompute else self.inner(h)))


g = torch.Generator().manual_seed(17)
pictures, words, classes = torch.randn(64, 3, 8, 8, generator=g), torch.randint(0, 40, (64,), generator=g), torch.randint(0, 5, (64,), generator=g)


def train(change, seed={seed}, lr=1e-2):
    torch.set_num_threads(2 if change == "threads" else 1)
    torch.use_deterministic_algorithms(change == "deterministic")
    torch.manual_seed(seed + (change == "seed"))
    model = Reader()
    model.recompute = change == "checkpoint"
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, foreach=change != "optimizer form")
    losses = []
    for step in range({steps}):
        rows = torch.arange(step * 16 % 64, step * 16 % 64 + 16)
        rows = rows.flip(0) if change == "order" else rows[:8] if change == "batch" else rows
        if change == "extra draw" and step == 3:
            torch.rand(1)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures[rows], words[rows]), classes[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    torch.set_num_threads(1)
    return torch.cat([p.detach().double().flatten() for p in model.parameters()]), losses

"""
_GAP = """
(a, _), (b, _) = train("nothing"), train("{change}")
print(((a - b).norm() / a.norm()).item())
"""
_LEVELS = """
seeds = [train("nothing", {seed} + k)[1] for k in range(5)]
print(max(max(step) - min(step) for step in zip(*seeds)))
"""
_HOST = """import torch
import torch.nn.functional as F

rows, weights = torch.randint(0, 50, (65_536,), generator=torch.Generator().manual_seed(3)), torch.randn(65_536, generator=torch.Generator().manual_seed(4))
torch.set_num_threads(2)
found = {tuple(torch.zeros(50).index_put_((rows,), weights, accumulate=True).tolist()) for _ in range(20)}
print("distinct", len(found))
torch.use_deterministic_algorithms(True)
refused = 0
for call in (
    lambda: torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0])), lambda: torch.zeros(3).scatter(0, torch.tensor([0, 0, 1]), torch.ones(3)),
    lambda: F.max_unpool2d(torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.long), 2), lambda: torch.ones(4).cumsum(0), lambda: torch.ones(4).median(),
    lambda: torch.bincount(torch.tensor([0, 1]), torch.ones(2)), lambda: torch.zeros(3).index_add(0, torch.tensor([0, 0]), torch.ones(2)),
    lambda: torch.zeros(3).index_copy(0, torch.tensor([0, 0]), torch.ones(2)),
):
    try:
        call()
    except RuntimeError as error:
        refused += 1
        print(error)
torch.use_deterministic_algorithms(False)
print(refused)
"""
_SOURCES = """import os, platform, torch

print(torch.__version__, platform.python_version(), torch.backends.cpu.get_cpu_capability(), os.environ.get("PYTHONHASHSEED", "random"))
print(torch.get_num_threads())
"""


def script(params: Params) -> str:
    """A program of its own."""
    if params.view == "sources":
        return _SOURCES
    if params.view == "host":
        return _HOST
    if params.view == "program":
        headline = HEADLINES.get(params.code)
        return (
            "import math\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
            f"torch.manual_seed({params.seed})\n\n{params.code.rstrip()}\n"
            + (f"print({headline})\n" if headline else "")
        )
    training = _TRAINING.format(seed=params.seed, steps=params.steps)
    return training + (
        _LEVELS.format(seed=params.seed) if params.view == "levels" else _GAP.format(change=params.change)
    )
