"""What measuring costs: passes of dropout, the scan of a model, and the page's default run against the bare work."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.turns import in_turns, line
from lab.contract import silent
from lab.experiments.train_eval import Params, run
from lab.experiments.train_eval.studies.dropout_passes import read_dropout
from lab.instruments.modes.scan import scan_modes

PASSES = 200


def measure() -> Iterator[dict[str, Any]]:
    """Each against plain torch on the same input, one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield _passes()
        yield _scan()
        yield _default_run()
    finally:
        torch.set_num_threads(threads)


def _bare_passes(x: torch.Tensor) -> None:
    layer = nn.Dropout(0.5)
    for _ in range(PASSES):
        layer(x)


def _passes() -> dict[str, Any]:
    x = torch.randn(128, 512)
    ours, theirs = in_turns(
        lambda: read_dropout("Dropout", 0.5, x, PASSES, 0, False, lambda fraction: None),
        lambda: _bare_passes(x),
        rounds=7,
    )
    detail = f"{PASSES} passes over {x.numel():,} elements, every mask compared, against the passes alone"
    return line("dropout passes, read", ours, theirs, detail, better="lower")


def _network() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.3)) for _ in range(8)]
    return nn.Sequential(*layers), torch.randn(256, 256)


def _scan_by_copies(net: nn.Module, x: torch.Tensor) -> list[float]:
    """The plain way: a copy of the model for each of its modules, one seed."""
    gaps = []
    with torch.no_grad():
        reference = copy.deepcopy(net).eval()(x)
        for name, _ in net.named_modules():
            other = copy.deepcopy(net).eval()
            other.get_submodule(name).training = True
            gaps.append((other(x) - reference).square().mean().sqrt().item())
    return gaps


def _scan() -> dict[str, Any]:
    net, x = _network()
    ours, theirs = in_turns(
        lambda: scan_modes(net, lambda: net(x), seed=0, file="", device="cpu", repeats=1),
        lambda: _scan_by_copies(net, x),
        rounds=5,
    )
    detail = f"{sum(1 for _ in net.modules())} modules, one seed, against a copy of the model for each"
    return line("scan of modes", ours, theirs, detail)


def _default_run() -> dict[str, Any]:
    x = torch.ones(Params().shape)
    ours, theirs = in_turns(lambda: run(Params(), silent), lambda: _bare_passes(x), rounds=9)
    return line(
        "default dropout run", ours, theirs, "the page's first result against its 200 passes alone", better="lower"
    )
