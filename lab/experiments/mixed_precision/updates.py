"""Updates that are lost: a step of Adam against the distance to the next number, sums and averages in few bits, products."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from lab.experiments.mixed_precision.formats import TYPES
from lab.records.precision import Drift, Lost, MatmulError
from lab.workloads.deep_classifier import a_batch, deep_classifier

RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


def lost_updates() -> Iterator[Lost]:
    """One step of Adam on a Linear of 256: which weights change, and which should by the distance to the next number."""
    for name in ("fp32", "bf16", "fp16"):
        for lr in RATES:
            yield _one_step(name, TYPES[name], lr)


def _one_step(name: str, dtype: torch.dtype, lr: float) -> Lost:
    torch.manual_seed(0)
    layer = nn.Linear(256, 256).to(dtype)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.Adam(layer.parameters(), lr=lr, eps=1e-4 if name == "fp16" else 1e-8)
    inputs = torch.randn(32, 256, generator=torch.Generator().manual_seed(2)).to(dtype)
    layer(inputs).float().pow(2).mean().backward()
    optimizer.step()
    moved = float((layer.weight.detach() != before).double().mean())
    return Lost(name, lr, moved, float((lr >= spacing(before) / 2).double().mean()))


def spacing(values: torch.Tensor) -> torch.Tensor:
    """Distance from each value to the next one away from zero, in float64."""
    exponent = torch.frexp(values.double().abs().clamp_min(1e-30))[1] - 1
    return torch.finfo(values.dtype).eps * torch.pow(2.0, exponent.double())


def drifts() -> Iterator[Drift]:
    """Sums and averages that stop, next to their exact values."""
    for name in ("fp32", "bf16"):
        dtype = TYPES[name]
        weight = torch.ones(8, dtype=dtype)
        for _ in range(1000):
            weight.sub_(1e-3)
        yield Drift("1 less 0.001, a thousand times", name, float(weight[0]), 0.0)
        average = torch.zeros((), dtype=dtype)
        for _ in range(5000):
            average.mul_(0.999).add_(0.001)
        yield Drift("average with 0.999 of ones, 5,000 times", name, float(average), 1 - 0.999**5000)
    torch.manual_seed(0)
    rounded = torch.ones(1000, dtype=torch.bfloat16)
    for _ in range(1000):
        rounded = stochastically_rounded(rounded.float() - 1e-3)
    yield Drift(
        "1 less 0.001, a thousand times", "bf16, rounded at random (mean of 1,000)", float(rounded.float().mean()), 0.0
    )
    ones = torch.ones(70_000, dtype=torch.float16)
    yield Drift("sum of 70,000 ones", "fp16", float(ones.sum()), 70_000.0)
    yield Drift("mean of 70,000 ones", "fp16", float(ones.mean()), 1.0)


def stochastically_rounded(values: torch.Tensor) -> torch.Tensor:
    """float32 to bfloat16, up or down with the chances that make the mean exact."""
    bits = values.view(torch.int32)
    drawn = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32)
    return ((bits + drawn) & -65536).view(torch.float32).bfloat16()


def matmul_errors() -> Iterator[MatmulError]:
    """(8, K) times (K, 8) against float64, with torch's kernel and added up one product after another in the dtype."""
    for k in (16, 64, 256, 1024):
        own = torch.Generator().manual_seed(k)
        a, b = torch.randn(8, k, generator=own), torch.randn(k, 8, generator=own)
        for name in ("fp32", "bf16", "fp16"):
            x, y = a.to(TYPES[name]), b.to(TYPES[name])
            exact = a.double() @ b.double()
            yield MatmulError(name, k, "by torch", _error((x @ y).double(), exact))
            total = torch.zeros(8, 8, dtype=TYPES[name])
            for at in range(k):
                total = total + x[:, at : at + 1] * y[at : at + 1]
            yield MatmulError(name, k, "one after another", _error(total.double(), exact))


def _error(product: torch.Tensor, exact: torch.Tensor) -> float:
    return float((product - exact).square().mean().sqrt() / exact.square().mean().sqrt())


def step_seconds() -> dict[str, float]:
    """A forward and backward of four layers of 64 by dtype of autocast; rounds in turns, the shortest counts."""
    model, (inputs, classes) = deep_classifier(4, "relu"), a_batch()
    best: dict[str, float] = {}
    for _ in range(4):
        for name in ("fp32", "bf16", "fp16"):
            started = time.perf_counter()
            with torch.autocast("cpu", dtype=TYPES[name], enabled=name != "fp32"):
                loss = F.cross_entropy(model(inputs), classes)
            loss.backward()
            seconds = time.perf_counter() - started
            best[name] = min(best.get(name, seconds), seconds)
    return best
