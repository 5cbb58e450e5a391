"""A small trained classifier with everything around it, as named stages, and the ways in which serving departs from training.

Rows are dicts of four numbers. The path makes features of them, normalises, casts, runs the modules, and turns logits into
probabilities and names. A skew changes one thing in a copy of the path; the stage where it acts is known.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

COLUMNS = ("age", "income", "clicks", "visits")
LABELS = ("low", "mid", "high")
Row = dict[str, float]
Stage = torch.Tensor | list[str]


def rows(count: int, seed: int, *, age_shift: float = 0.0) -> list[Row]:
    """Customers that do not exist."""
    own = torch.Generator().manual_seed(seed)
    table = torch.stack(
        [
            torch.randint(18, 80, (count,), generator=own).float() + age_shift,
            torch.rand(count, generator=own) * 9e4 + 1e4,
            torch.randint(0, 50, (count,), generator=own).float(),
            torch.randint(0, 20, (count,), generator=own).float(),
        ],
        1,
    )
    return [dict(zip(COLUMNS, map(float, row), strict=True)) for row in table]


class Classifier(nn.Module):
    """4 features to 3 logits."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn, self.act = nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU()
        self.drop, self.fc2 = nn.Dropout(0.3), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.drop(self.act(self.bn(self.fc1(x)))))


@dataclass
class Path:
    """From rows to names. Everything that serving must share with training is a field."""

    model: nn.Module
    mean: torch.Tensor
    std: torch.Tensor
    columns: tuple[str, ...] = COLUMNS
    dtype: torch.dtype = torch.float32
    probabilities: Callable[[torch.Tensor], torch.Tensor] = field(default=lambda logits: logits.softmax(1))
    labels: tuple[str, ...] = LABELS
    batch: int | None = None
    """Rows that go through the model at once; None: all."""

    def run(self, golden: list[Row]) -> dict[str, Stage]:
        """Every stage by name, in order. Two-dimensional, a row each, but for the names at the end."""
        features = torch.tensor([[row.get(column, 0.0) for column in self.columns] for row in golden])
        normalised = (features - self.mean) / self.std
        cast = normalised.to(self.dtype)
        stages: dict[str, Stage] = {"features": features, "normalised": normalised, "dtype": cast.float()}
        modules, logits = run_modules(self.model, cast.split(self.batch) if self.batch else (cast,))
        stages |= {f"module {name}": value for name, value in modules.items()}
        share = self.probabilities(logits)
        names = [self.labels[at] for at in share.argmax(1).tolist()]
        return stages | {"logits": logits, "probabilities": share, "label": names}


def run_modules(model: nn.Module, chunks: tuple[torch.Tensor, ...]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Output of every module that has a name, in the order of the calls, and of the model; joined over the chunks."""
    seen: dict[str, list[torch.Tensor]] = {}

    def noted(name: str) -> Callable[[Any, Any, Any], None]:
        def hook(module: Any, args: Any, out: Any) -> None:
            if isinstance(out, torch.Tensor):
                seen.setdefault(name, []).append(out.detach().float())

        return hook

    handles = [m.register_forward_hook(noted(name)) for name, m in model.named_modules() if name]
    try:
        with torch.no_grad():
            outputs = [model(chunk) for chunk in chunks]
    finally:
        for handle in handles:
            handle.remove()
    return {name: torch.cat(parts) for name, parts in seen.items()}, torch.cat(outputs).float()


@cache
def _trained() -> tuple[Classifier, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The model after 300 steps in eval mode, mean and standard deviation of the training rows, and these as (512, 4)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        table = torch.tensor([[row[column] for column in COLUMNS] for row in rows(512, 5)])
        mean, std = table.mean(0), table.std(0)
        classes = (table[:, 1] > 4e4).long() + (table[:, 2] > 25).long()
        model = Classifier()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with torch.enable_grad():
            for _ in range(300):
                chosen = torch.randint(0, 512, (64,))
                optimizer.zero_grad()
                F.cross_entropy(model((table[chosen] - mean) / std), classes[chosen]).backward()
                optimizer.step()
    return model.eval(), mean, std, table


def trained_path() -> Path:
    """The path of training, a copy of its own."""
    model, mean, std, _ = _trained()
    return Path(copy.deepcopy(model), mean, std)


def served_path(skew: str) -> Path:
    """The path with one thing changed. Raises KeyError for a skew that is not in ``SKEWS``."""
    return SKEWS[skew].change(trained_path())


@dataclass(frozen=True)
class Skew:
    """One departure of serving from training."""

    stage: str
    """Where it acts first; empty for what changes nothing."""
    change: Callable[[Path], Path]


def _batch_statistics(path: Path) -> Path:
    table = torch.tensor([[row[column] for column in COLUMNS] for row in rows(64, 77, age_shift=15.0)])
    return replace(path, mean=table.mean(0), std=table.std(0))


def _part(name: str, act: Callable[[Any], Any]) -> Callable[[Path], Path]:
    def change(path: Path) -> Path:
        act(path.model.get_submodule(name) if name else path.model)
        return path

    return change


def _without_head(path: Path) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        model = Classifier()
    model.load_state_dict({k: v for k, v in path.model.state_dict().items() if "fc2" not in k}, strict=False)
    return replace(path, model=model.eval())


def _older(path: Path) -> Path:
    with torch.no_grad():
        path.model.get_parameter("fc1.weight").mul_(0.999)
    return path


def _int8(path: Path) -> Path:
    with torch.no_grad():
        for name in ("fc1.weight", "fc2.weight"):
            weight = path.model.get_parameter(name)
            scale = weight.abs().amax(1, keepdim=True) / 127
            weight.copy_((weight / scale).round().clamp(-127, 127) * scale)
    return path


def _biased(path: Path) -> Path:
    return replace(path, std=_trained()[3].std(0, unbiased=False))


SKEWS: dict[str, Skew] = {
    "none": Skew("", lambda path: path),
    "feature order": Skew("features", lambda path: replace(path, columns=("income", "age", "clicks", "visits"))),
    "missing feature read as 0": Skew(
        "features", lambda path: replace(path, columns=("age", "income", "clicks", "visit_count"))
    ),
    "not normalised": Skew(
        "normalised", lambda path: replace(path, mean=torch.zeros(4), std=torch.ones(4))
    ),
    "statistics of the serving batch": Skew("normalised", _batch_statistics),
    "biased for unbiased std": Skew("normalised", _biased),
    "constants through float16": Skew("normalised", lambda path: replace(path, mean=path.mean.half().float())),
    "bfloat16": Skew(
        "dtype", lambda path: replace(path, dtype=torch.bfloat16, model=path.model.to(torch.bfloat16))
    ),
    "train mode": Skew("module bn", _part("", lambda m: m.train())),
    "only dropout left on": Skew("module drop", _part("drop", lambda m: m.train())),
    "only BatchNorm left in train": Skew("module bn", _part("bn", lambda m: m.train())),
    "running statistics not loaded": Skew("module bn", _part("bn", lambda m: m.reset_running_stats())),
    "head not loaded": Skew("module fc2", _without_head),
    "old checkpoint": Skew("module fc1", _older),
    "int8 weights": Skew("module fc1", _int8),
    "sigmoid for softmax": Skew("probabilities", lambda path: replace(path, probabilities=torch.sigmoid)),
    "temperature 2": Skew(
        "probabilities", lambda path: replace(path, probabilities=lambda logits: (logits / 2).softmax(1))
    ),
    "labels permuted": Skew("label", lambda path: replace(path, labels=("low", "high", "mid"))),
    "batches of one": Skew("", lambda path: replace(path, batch=1)),
}  # fmt: skip
