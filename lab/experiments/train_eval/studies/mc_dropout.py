"""MC dropout: dropout left on at prediction, the spread over passes read as uncertainty (Gal and Ghahramani 2016).

With one dropout layer before a linear output the spread has a closed form: Var = Σ_k w_k²·h_k²·p/(1 − p).
"""

from __future__ import annotations

import time

import torch
from torch import nn

from lab.records.modes_dropout import McReading, McSample

WIDTH = 64


def mc_network(p: float) -> nn.Sequential:
    """(N, 1) -> (N, 1): Linear, BatchNorm, Tanh, Dropout, Linear."""
    return nn.Sequential(nn.Linear(1, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh(), nn.Dropout(p), nn.Linear(WIDTH, 1))


@torch.no_grad()
def read_mc_dropout(p: float, passes: int, seed: int, device: str, samples: int = 33) -> McReading:
    """Train mode for the dropout layer only, eval mode for the rest."""
    torch.manual_seed(seed)
    net = mc_network(p).to(device)
    x = torch.linspace(-2, 2, samples, device=device).unsqueeze(1)  # (N, 1)
    one_pass_s, reference = _timed(net.eval(), x)
    norm, drop, last = net[1], net[3], net[4]
    hidden, weight = net[:3](x).double(), last.weight.double()
    assert isinstance(norm, nn.BatchNorm1d)
    assert isinstance(weight, torch.Tensor)
    drop.train()
    started = time.perf_counter()
    outputs = torch.stack([net(x) for _ in range(passes)]).squeeze(2).double()  # (passes, N)
    _wait(device)
    all_passes_s = time.perf_counter() - started
    predicted = (weight.square() * hidden.square()).sum(1).mul(p / (1 - p)).sqrt() if p < 1 else torch.zeros(samples)
    spread = outputs.std(0, correction=0)
    columns = zip(x.squeeze(1), reference.squeeze(1), outputs.mean(0), spread, predicted, strict=True)
    return McReading(
        passes=passes,
        samples=tuple(McSample(*(float(value) for value in row)) for row in columns),
        mean_std=float(spread.mean()),
        batchnorm_batches=int(norm.num_batches_tracked or 0),
        one_pass_s=one_pass_s,
        all_passes_s=all_passes_s,
    )


def _timed(net: nn.Module, x: torch.Tensor) -> tuple[float, torch.Tensor]:
    """(median seconds of 20 forwards, output)."""
    times, output = [], net(x)
    for _ in range(20):
        _wait(x.device.type)
        started = time.perf_counter()
        output = net(x)
        _wait(x.device.type)
        times.append(time.perf_counter() - started)
    return sorted(times)[10], output


def _wait(device: str) -> None:
    """A launch returns before the device has worked: wait before reading the clock."""
    if device == "cuda":
        torch.cuda.synchronize()
