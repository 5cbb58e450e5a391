"""Which layers and functions listen to eval(): each run alone, in both modes, on the same input."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from lab.experiments.train_eval.studies.dropout_forms import FunctionalDropout
from lab.records.modes_dropout import Listener


class SwitchedDropout(nn.Module):
    """F.dropout with ``training=self.training``: the functional form written so that it listens."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.p, training=self.training)


class AttentionDropout(nn.Module):
    """scaled_dot_product_attention with a constant ``dropout_p``."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, dropout_p=self.p)


Make = Callable[[float], nn.Module]
N, C, L = 4, 6, 5
FLAT, SEQUENCE, IMAGE = (N, C), (N, C, L), (N, C, L, L)

DROPOUTS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "nn.Dropout": (nn.Dropout, FLAT),
    "nn.Dropout1d": (nn.Dropout1d, SEQUENCE),
    "nn.Dropout2d": (nn.Dropout2d, IMAGE),
    "nn.Dropout2d on (N, C, L)": (nn.Dropout2d, SEQUENCE),
    "nn.AlphaDropout": (nn.AlphaDropout, FLAT),
    "nn.FeatureAlphaDropout": (nn.FeatureAlphaDropout, SEQUENCE),
    "F.dropout(x, p)": (FunctionalDropout, FLAT),
    "F.dropout(x, p, training=self.training)": (SwitchedDropout, FLAT),
    "F.scaled_dot_product_attention(dropout_p=p)": (AttentionDropout, SEQUENCE),
    "nn.RReLU": (lambda p: nn.RReLU(), FLAT),
}
NORMS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "nn.BatchNorm1d": (lambda p: nn.BatchNorm1d(C), FLAT),
    "nn.BatchNorm1d(track_running_stats=False)": (lambda p: nn.BatchNorm1d(C, track_running_stats=False), FLAT),
    "nn.BatchNorm2d": (lambda p: nn.BatchNorm2d(C), IMAGE),
    "nn.SyncBatchNorm, one process": (lambda p: nn.SyncBatchNorm(C), FLAT),
    "nn.InstanceNorm1d": (lambda p: nn.InstanceNorm1d(C), SEQUENCE),
    "nn.InstanceNorm1d(track_running_stats=True)": (
        lambda p: nn.InstanceNorm1d(C, track_running_stats=True),
        SEQUENCE,
    ),
    "nn.LayerNorm": (lambda p: nn.LayerNorm(C), FLAT),
    "nn.GroupNorm": (lambda p: nn.GroupNorm(2, C), SEQUENCE),
    "nn.RMSNorm": (lambda p: nn.RMSNorm(C), FLAT),
}


@torch.no_grad()
def read_listeners(
    layers: dict[str, tuple[Make, tuple[int, ...]]], p: float, seed: int, device: str
) -> tuple[Listener, ...]:
    """One row a layer, in order."""
    torch.manual_seed(seed)
    return tuple(_listener(name, make(p).to(device), shape, device) for name, (make, shape) in layers.items())


def _listener(name: str, layer: nn.Module, shape: tuple[int, ...], device: str) -> Listener:
    x = torch.randn(shape, device=device) * 2 + 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first, second = layer(x), layer(x)
        unit = _unit(layer, x)
        layer.eval()
        evaluated, again, fewer = layer(x), layer(x), layer(x[:2])
    random = _gap(evaluated, again) > 0
    return Listener(
        name=name,
        shape=shape,
        train_spread=_gap(first, second),
        eval_spread=_gap(evaluated, again),
        mode_gap=_gap(first, evaluated),
        needs_the_batch=not random and _gap(fewer[0], evaluated[0]) > 1e-4,
        drops=unit,
        warning=str(caught[0].message).partition(". ")[0] if caught else "",
    )


def _unit(layer: nn.Module, x: torch.Tensor) -> str:
    """The largest piece that always has one fate, over eight passes: element, row, plane."""
    changed = torch.stack([layer(torch.ones_like(x)) for _ in range(8)])  # (passes, N, C, ...)
    values = changed.round(decimals=4).unique()
    if len(values) != 2:
        return ""
    dropped = changed < values.mean()
    for name, dims in (("plane", 2), ("row", 1)):
        if x.dim() == 2 + dims:
            pieces = dropped.flatten(-dims)
            return name if bool((pieces.all(-1) == pieces.any(-1)).all()) else "element"
    return "element"


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item()
