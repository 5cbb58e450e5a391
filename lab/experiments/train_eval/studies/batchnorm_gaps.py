"""How far train and eval mode of BatchNorm are apart: against batch size, and when serving data has moved."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from lab.experiments.train_eval.studies.batchnorm_trace import Norm, NormSettings, both_modes, channel_rows, rms
from lab.records.modes_batchnorm import ServingRow, SizeRow
from lab.workloads.channel_batches import batch_of

BATCH_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@torch.no_grad()
def size_rows(
    settings: NormSettings, sizes: tuple[int, ...], side: int, like: torch.Tensor, seed: int
) -> tuple[SizeRow, ...]:
    """One row a size, each with its own start of the generator. ``side``: of images; ``like`` gives dtype and device."""
    return tuple(_size_row(settings, size, side, like, seed) for size in sizes)


def _size_row(settings: NormSettings, size: int, side: int, like: torch.Tensor, seed: int) -> SizeRow:
    torch.manual_seed(seed)
    shape = (size, settings.channels, side, side) if settings.module == "BatchNorm2d" else (size, settings.channels)
    x = batch_of(shape, like.dtype, like.device.type)
    n = x.numel() // settings.channels
    limit = math.sqrt((n - 1) / n)
    layer = replace(settings, momentum=1.0).make().to(like)
    try:
        train, evaluated = both_modes(layer, x)
    except ValueError as error:
        return SizeRow(size, n, None, None, limit, None, str(error))
    biased, unbiased = (channel_rows(x.double()).var(1, correction=c) for c in (0, 1))
    stds = [channel_rows(y.double()).std(1, correction=0) for y in (evaluated, train)]
    ratio, predicted = stds[0] / stds[1], ((biased + settings.eps) / (unbiased + settings.eps)).sqrt()
    if not settings.track_running_stats:
        predicted = torch.ones_like(predicted)  # both modes use the batch
    return SizeRow(size, n, ratio[0].item(), predicted[0].item(), limit, (ratio - predicted).abs().max().item(), "")


SHIFTS = (-4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)


@torch.no_grad()
def serving_rows(layer: Norm, x: torch.Tensor, shift: float, scale: float) -> tuple[ServingRow, ...]:
    """Shifts around ``shift`` at one ``scale``, ascending, on the data ``x``. ``layer`` has been trained; it is not moved."""
    shifts = sorted({*SHIFTS, shift})
    return tuple(_serving_row(layer, scale * x + value, value, scale) for value in shifts)


def _serving_row(layer: Norm, x: torch.Tensor, shift: float, scale: float) -> ServingRow:
    momentum, counted = layer.momentum, layer.num_batches_tracked
    layer.momentum = 0.0  # train mode without moving what is stored
    train, evaluated = both_modes(layer, x)
    layer.momentum = momentum
    if counted is not None:
        counted -= 1
    return ServingRow(
        shift,
        scale,
        rms(train - evaluated),
        _predicted_gap(layer, x),
        evaluated.double().mean().item(),
        evaluated.double().std(correction=0).item(),
    )


def _predicted_gap(layer: Norm, x: torch.Tensor) -> float:
    """RMS of (x − μ)/s_train − (x − running mean)/s_eval, from first and second moments of each channel."""
    if layer.running_mean is None or layer.running_var is None:
        return 0.0
    rows = channel_rows(x.double())
    mean, var = rows.mean(1), rows.var(1, correction=0)
    s_train, s_eval = (var + layer.eps).sqrt(), (layer.running_var.double() + layer.eps).sqrt()
    squares = ((mean - layer.running_mean.double()) / s_eval).square() + var * (1 / s_eval - 1 / s_train).square()
    return math.sqrt(squares.mean().item())
