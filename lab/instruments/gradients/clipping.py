"""What clipping did to a gradient: its norm before and after, what was returned, how much of the direction is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lab.instruments.gradients.norms import dense, norm


def total_norm(gradients: Sequence[torch.Tensor], norm_type: float) -> float:
    """The ``norm_type`` norm of all values as one vector, in float64: what ``clip_grad_norm_`` is defined to return."""
    if not gradients:
        return 0.0
    if norm_type == 2.0:
        norms = [float(norm(dense(g))) for g in gradients]
        return math.nan if any(map(math.isnan, norms)) else math.hypot(*norms)
    each = [float(torch.linalg.vector_norm(dense(g), norm_type, dtype=torch.float64)) for g in gradients]
    if any(map(math.isnan, each)):
        return math.nan
    return max(each) if math.isinf(norm_type) else math.fsum(n**norm_type for n in each) ** (1 / norm_type)


@dataclass(frozen=True)
class Change:
    """A gradient before and after."""

    norm_before: float
    norm_after: float
    cosine: float | None
    """Of the angle between the two; 1 keeps the direction. None when one of them is zero or not finite."""
    changed_share: float
    """Share of the values that are different."""


def compare(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor], norm_type: float = 2.0) -> Change:
    """``before`` holds copies: clipping writes in place."""
    changed = sum(int((dense(a) != dense(b)).sum()) for b, a in zip(before, after, strict=True))
    return Change(
        total_norm(before, norm_type),
        total_norm(after, norm_type),
        _cosine(before, after),
        changed / max(sum(g.numel() for g in before), 1),
    )


def _cosine(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float | None:
    lengths = total_norm(before, 2.0), total_norm(after, 2.0)
    if not all(math.isfinite(length) and length > 0 for length in lengths):
        return None
    pairs = zip(before, after, strict=True)
    product = math.fsum(
        float((dense(b).double() / lengths[0]).flatten() @ (dense(a).double() / lengths[1]).flatten()) for b, a in pairs
    )
    return max(-1.0, min(1.0, product))
