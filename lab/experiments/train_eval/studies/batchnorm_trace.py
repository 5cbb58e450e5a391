"""BatchNorm, batch by batch: what it saw, what it used, what it stored, what came out in both modes.

Train mode normalises with the batch's own mean μ and biased variance σ_b² (divided by n): y = (x − μ)/√(σ_b² + ε).
It stores running ← (1 − m)·running + m·new with the *unbiased* variance σ_u² (divided by n − 1); eval mode uses what is
stored. Ioffe and Szegedy 2015; torch.nn.BatchNorm1d. n counts all values of a channel: N, or N·H·W for images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from lab.records.modes_batchnorm import BatchRow

Norm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d


@dataclass(frozen=True)
class NormSettings:
    """Arguments of the module."""

    module: str
    """BatchNorm1d or BatchNorm2d."""
    channels: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool

    def make(self) -> Norm:
        kind = {"BatchNorm1d": nn.BatchNorm1d, "BatchNorm2d": nn.BatchNorm2d}[self.module]
        return kind(
            self.channels,
            eps=self.eps,
            momentum=self.momentum,
            affine=self.affine,
            track_running_stats=self.track_running_stats,
        )


def trace_batches(layer: Norm, batches: list[torch.Tensor], fresh: torch.Tensor) -> tuple[BatchRow, ...]:
    """Feed the batches to ``layer`` in train mode. Raises ValueError when a batch has one value a channel."""
    return tuple(_row(layer, number, x, fresh) for number, x in enumerate(batches, 1))


def _row(layer: Norm, number: int, x: torch.Tensor, fresh: torch.Tensor) -> BatchRow:
    x = x.detach().requires_grad_()
    train, evaluated = both_modes(layer, x)
    incoming = torch.linspace(-1, 1, x.numel(), dtype=x.dtype, device=x.device).view_as(x).sin()
    (gradient,) = torch.autograd.grad(train, x, incoming)
    x, train, evaluated = x.detach(), train.detach(), evaluated.detach()
    by_hand = gradient_by_formula(x, incoming, layer.eps)
    mean, var, counted = layer.running_mean, layer.running_var, layer.num_batches_tracked
    biased, unbiased = (channel_rows(x).var(1, correction=c) for c in (0, 1))
    return BatchRow(
        batch=number,
        values=x.numel() // x.shape[1],
        batch_mean=_list(channel_rows(x).mean(1)),
        batch_var_biased=_list(biased),
        batch_var_unbiased=_list(unbiased),
        running_mean=None if mean is None else _list(mean),
        running_var=None if var is None else _list(var),
        num_batches_tracked=None if counted is None else int(counted),
        weight_of_batch=None if mean is None else 1 / number if layer.momentum is None else layer.momentum,
        train_std=_list(channel_rows(train).std(1, correction=0)),
        eval_std=_list(channel_rows(evaluated).std(1, correction=0)),
        train_mean=_list(channel_rows(train).mean(1)),
        eval_mean=_list(channel_rows(evaluated).mean(1)),
        mode_gap=rms(train - evaluated),
        fresh_gap=_fresh_gap(layer, fresh),
        formula_error=(train.double() - by_formula(x, layer.eps)).abs().max().item(),
        gradient_error=((gradient.double() - by_hand).abs().max() / by_hand.abs().max().clamp(min=1e-300)).item(),
    )


def both_modes(layer: Norm, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(train output, eval output); the first moves the running statistics, the second uses them."""
    train = layer.train()(x)
    evaluated = layer.eval()(x)
    layer.train()
    return train, evaluated


def by_formula(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Train mode by hand, in float64, for weight 1 and bias 0."""
    rows = channel_rows(x.double())
    along = (1, x.shape[1], *[1] * (x.dim() - 2))
    return (x.double() - rows.mean(1).view(along)) / (rows.var(1, correction=0).view(along) + eps).sqrt()


def gradient_by_formula(x: torch.Tensor, incoming: torch.Tensor, eps: float) -> torch.Tensor:
    """Gradient of the loss with respect to x in train mode, in float64: mean and variance depend on x as well."""
    y, g = channel_rows(by_formula(x, eps)), channel_rows(incoming.double())
    std = (channel_rows(x.double()).var(1, correction=0, keepdim=True) + eps).sqrt()
    rows = (g - g.mean(1, keepdim=True) - y * (g * y).mean(1, keepdim=True)) / std  # (C, n)
    return rows.view(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)


def channel_rows(x: torch.Tensor) -> torch.Tensor:
    """(N, C, ...) -> (C, n)."""
    return x.transpose(0, 1).flatten(1)


def rms(x: torch.Tensor) -> float:
    """Root mean square of all elements."""
    return math.sqrt(x.double().square().mean().item())


@torch.no_grad()
def _fresh_gap(layer: Norm, fresh: torch.Tensor) -> float:
    """Train output by formula, so that looking does not move the statistics; affine is still 1 and 0."""
    evaluated = layer.eval()(fresh)
    layer.train()
    return rms(by_formula(fresh, layer.eps) - evaluated.double())


def _list(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())
