"""Batches with a different mean and spread in every channel, so that running statistics have something to find."""

from __future__ import annotations

import torch


def channel_means(channels: int, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """(C,): 1, 2, 3, ..."""
    return torch.arange(1, channels + 1, dtype=dtype, device=device)


def channel_stds(channels: int, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """(C,): 1, 1.5, 2, ..."""
    return 1 + 0.5 * torch.arange(channels, dtype=dtype, device=device)


def batch_of(shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """A batch of ``shape`` (N, C) or (N, C, H, W) from the normal distribution of each channel; uses the global generator.

    Drawn in float64 on the CPU and then converted, so that every dtype and device gets the same numbers.
    """
    channels = shape[1]
    along = (1, channels, *[1] * (len(shape) - 2))
    mean, std = (f(channels, torch.float64).view(along) for f in (channel_means, channel_stds))
    return (mean + std * torch.randn(shape, dtype=torch.float64)).to(device, dtype)
