"""Two dicts of stages compared in order, and the tables that name the cause."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from lab.records.serving import Cause, ColumnGap, StageGap

Stages = Mapping[str, Any]


def compare(train: Stages, serve: Stages, again: Stages | None, tolerance: float) -> tuple[StageGap, ...]:
    """Stages that both paths have, in the order of the training path. ``again``: a second call of the serving path."""
    found = []
    for name, value in train.items():
        if name not in serve:
            continue
        gap, scale = gap_of(value, serve[name], by_column=name == "features")
        repeated = gap_of(serve[name], again[name], by_column=False)[0] if again and name in again else 0.0
        exact = scale == 0.0
        found.append(
            StageGap(
                name=name,
                gap=gap,
                agrees=gap == 0.0 if exact else gap <= tolerance,
                equal=_equal(value, serve[name]),
                scale=scale,
                repeated_gap=repeated,
            )
        )
    return tuple(found)


def gap_of(a: Any, b: Any, *, by_column: bool) -> tuple[float, float]:
    """(gap, scale): in standard deviations of ``a``; scale 0 where only equality counts, and the gap is a share then."""
    x, y = _tensor(a), _tensor(b)
    if x is None or y is None:
        return _share(a, b), 0.0
    if x.shape != y.shape:
        return math.inf, 1.0
    if not x.numel():
        return 0.0, 0.0
    if not (x.is_floating_point() or y.is_floating_point()):
        return float((x != y).double().mean()), 0.0
    x, y = x.double(), y.double()
    both_nan = x.isnan() & y.isnan()
    difference = (x - y).abs().masked_fill(both_nan | (x == y), 0.0)
    if difference.isnan().any():
        return math.inf, 1.0
    if by_column and x.dim() == 2 and len(x) > 1:
        scales = x.std(0).clamp_min(1e-12)
        return float((difference.amax(0) / scales).max()), float(x.std())
    known = x[x.isfinite()]
    scale = float(known.std()) if known.numel() > 1 else float(known.abs().max()) if known.numel() else 1.0
    scale = scale or float(known.abs().max()) or 1.0
    return float(difference.max()) / scale, scale


def _tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, bool) or (
        not isinstance(value, (int, float, list, tuple)) and type(value).__module__ != "numpy"
    ):
        return None
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _share(a: Any, b: Any) -> float:
    """Of places that differ; 1 where the lengths do."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return 1.0
        return sum(x != y for x, y in zip(a, b, strict=True)) / max(len(a), 1)
    return float(a != b)


def _equal(a: Any, b: Any) -> bool:
    x, y = _tensor(a), _tensor(b)
    if x is None or y is None:
        return _share(a, b) == 0.0
    return x.shape == y.shape and x.dtype == y.dtype and bool(((x == y) | (x.isnan() & y.isnan())).all())


def columns_of(train: Stages, serve: Stages, names: Sequence[str]) -> tuple[ColumnGap, ...]:
    """The features column by column, each in its own standard deviation: a large column hides none."""
    a, b = train.get("features"), serve.get("features")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.shape != b.shape or a.dim() != 2:
        return ()
    x, y = a.double(), b.double()
    scales = x.std(0).clamp_min(1e-12) if len(x) > 1 else x.abs().amax(0).clamp_min(1e-12)
    gaps = ((x - y).abs().amax(0) / scales).tolist()
    return tuple(ColumnGap(name, gap) for name, gap in zip(names, gaps, strict=False))


def first_of(stages: Sequence[StageGap]) -> str:
    """The first stage that does not agree; empty where all do."""
    return next((stage.name for stage in stages if not stage.agrees), "")


def random_from(stages: Sequence[StageGap]) -> str:
    """The first stage at which two calls of the serving path differ."""
    return next((stage.name for stage in stages if stage.repeated_gap > 0.0), "")


def weights_that_differ(a: nn.Module, b: nn.Module) -> tuple[str, ...]:
    """Names of parameters and buffers that are not equal or not in both."""
    one, other = a.state_dict(), b.state_dict()
    return tuple(name for name in dict.fromkeys([*one, *other]) if not _same(one.get(name), other.get(name)))


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.shape != b.shape:
        return False
    return torch.equal(a.detach().cpu().to(b.dtype), b.detach().cpu())


def modes_that_differ(a: nn.Module, b: nn.Module) -> tuple[str, ...]:
    """Modules that are in train mode in one and in eval mode in the other."""
    other = dict(b.named_modules())
    return tuple(name for name, m in a.named_modules() if name and name in other and m.training != other[name].training)


def cause_of(first: str, *, weights: Sequence[str], modes: Sequence[str], columns: Sequence[ColumnGap], random: str, dtypes: Sequence[str], tolerance: float) -> Cause | None:  # fmt: skip
    """What the tables say about the stage that parts first; None where no stage does."""
    if not first:
        return None
    if first == "features":
        return Cause("features", tuple(c.name for c in columns if c.gap > tolerance))
    if first == "normalised":
        return Cause("normalisation", ("mean", "std"))
    if first == "dtype":
        return Cause("dtype", tuple(d for d in dtypes if d != "float32"))
    if first in ("probabilities", "label"):
        return Cause("postprocessing" if first == "probabilities" else "labels", (first,))
    if not first.startswith("module "):
        return Cause("stage", (first,))
    name = first.removeprefix("module ")
    own = [w for w in weights if w.rpartition(".")[0] == name]
    if own:
        return Cause("buffers" if all(_is_statistic(w) for w in own) else "weights", tuple(own))
    if name in modes:
        return Cause("mode", (name,))
    return Cause("randomness", (name,)) if random == first else Cause("stage", (first,))


def _is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked")
