"""The scan of a model's modes against closed forms, on this host."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from lab.instruments.modes.scan import scan_modes
from lab.records.modes_models import ModelScan


def _scan(model: nn.Module, x: torch.Tensor, device: str) -> ModelScan:
    return scan_modes(model, lambda: model(x), seed=0, file=__file__, device=device)


def _dropout_gap(device: str) -> str:
    """Dropout with p = ½ makes 0 or 2 of every 1: each is exactly 1 away from eval mode."""
    (row,) = _scan(nn.Dropout(0.5), torch.ones(64, device=device), device).modules
    assert row.gap == 1, f"the gap is {row.gap}, by hand 1"
    return "gap 1"


def _batchnorm_gap(device: str) -> str:
    """Of ±3, train mode divides by √(9 + ε), eval mode by √(1 + ε) before any batch was counted."""
    norm = nn.BatchNorm1d(2, dtype=torch.float64, device=device)
    x = torch.tensor([[3.0, -3.0], [-3.0, 3.0]], dtype=torch.float64, device=device)
    (row,) = _scan(norm, x, device).modules
    expected = 1 - math.sqrt((1 + norm.eps) / (9 + norm.eps))
    assert math.isclose(row.gap, expected), f"the gap is {row.gap:.9g}, by hand {expected:.9g}"
    assert row.statistics_moved, "a forward in train mode did not move the running statistics"
    left = norm.running_mean, norm.num_batches_tracked
    assert all(t is not None and not t.any() for t in left), f"the scan left running statistics {left}"
    return f"gap {row.gap:.6g}"


class _Ignores(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x, 0.5, training=self.training), 0.5)


def _ignored_mode(device: str) -> str:
    """F.dropout trains unless it is told otherwise: of two calls the second does not listen to eval()."""
    found = _scan(_Ignores(), torch.ones(64, device=device), device)
    seen = [(call.function, call.argument, call.kind) for call in found.ignoring]
    assert seen == [("F.dropout", "training=True", "random")], f"found {seen}, by hand one call of F.dropout"
    assert found.eval_spread > 0, "two outputs in eval mode are equal, although a dropout goes on"
    return "1 of 2 calls goes on"


ORACLES: dict[str, Callable[[str], str]] = {
    "mode scan: the gap of dropout": _dropout_gap,
    "mode scan: the gap of BatchNorm": _batchnorm_gap,
    "mode watch: a dropout that ignores eval()": _ignored_mode,
}
"""Name -> the check on a device: what it saw, or AssertionError."""
