"""Norm, RMS, mean and largest magnitude of tensors, exact where the tensor's own dtype would overflow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Summary:
    """Four numbers of all values of one or several tensors."""

    norm: float
    """Euclidean norm, accumulated in float64."""
    rms: float
    mean: float
    max: float
    """Largest magnitude."""


class Moments:
    """Collects tensors without waiting for the device; ``read`` waits. ``norm_only``: mean and largest are left NaN."""

    def __init__(self, *, norm_only: bool = False) -> None:
        self.count, self._norm_only = 0, norm_only
        self._parts: list[tuple[torch.Tensor, ...]] = []

    @torch.no_grad()
    def add(self, tensor: torch.Tensor) -> Moments:
        values = dense(tensor)
        if values.numel():
            self.count += values.numel()
            rest = () if self._norm_only else (values.sum(dtype=torch.float64), values.abs().amax())
            self._parts.append((norm(values), *rest))
        return self

    def read(self) -> Summary | None:
        """None when there was no value."""
        if not self.count:
            return None
        norms, *rest = zip(*([number.item() for number in part] for part in self._parts), strict=True)
        whole = math.nan if any(map(math.isnan, norms)) else math.hypot(*norms)  # hypot(nan, inf) is inf
        rms = whole / math.sqrt(self.count)
        if self._norm_only:
            return Summary(whole, rms, math.nan, math.nan)
        sums, largest = rest
        top = math.nan if any(map(math.isnan, largest)) else max(largest)
        return Summary(whole, rms, sum(sums) / self.count, top)


def summary(tensors: Iterable[torch.Tensor], *, norm_only: bool = False) -> Summary | None:
    """Of all values together; None when there is none."""
    moments = Moments(norm_only=norm_only)
    for tensor in tensors:
        moments.add(tensor)
    return moments.read()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Real values without a graph: of a sparse gradient those that are stored, of complex numbers both parts."""
    values = tensor.detach()
    values = values.coalesce().values() if values.is_sparse else values
    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


def norm(values: torch.Tensor) -> torch.Tensor:
    """Euclidean norm as a float64 scalar. In float64 itself squares could overflow, so the largest value is divided out."""
    if values.dtype != torch.float64:
        return torch.linalg.vector_norm(values, dtype=torch.float64)
    largest = values.abs().amax()
    scale = torch.where((largest > 0) & largest.isfinite(), largest, 1.0)
    return torch.linalg.vector_norm(values / scale) * scale


def underflow_share(tensors: Iterable[torch.Tensor], dtype: torch.dtype, scale: float = 1.0) -> float | None:
    """Share of the values other than zero that become zero in ``dtype`` after multiplying by ``scale``; None without one."""
    nonzero = lost = 0
    for tensor in tensors:
        values = dense(tensor)
        live = values != 0
        nonzero += int(live.sum())
        lost += int((((values * scale).to(dtype) == 0) & live).sum())
    return lost / nonzero if nonzero else None
