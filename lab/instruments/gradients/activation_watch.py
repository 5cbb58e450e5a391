"""How many values of an activation function sit where its derivative is next to nothing.

A TorchFunctionMode sees activation functions by name, whether a module or ``torch.nn.functional`` called them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

NEAR = 0.01
"""Saturated: within this share of the range of a bound."""
_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "sigmoid": (0.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "hardtanh": (-1.0, 1.0),
    "softsign": (-1.0, 1.0),
    "elu": (-1.0, None),
    "selu": (-1.7580993408473766, None),
}
_SILENT = {"relu", "relu6", "threshold"}
"""Exactly zero on one side: a unit that is zero for the whole batch gets no gradient."""


@dataclass
class Activity:
    """Counts for one layer; ``None`` shares where the question does not apply to its activation function."""

    function: str
    values: int = 0
    saturated: int = 0
    units: int = 0
    dead: int = 0
    at_bound: int = 0
    """Inputs that lie exactly on a bound of hardtanh, where its derivative is taken to be zero."""

    @property
    def saturated_share(self) -> float | None:
        return self.saturated / self.values if self.function in _BOUNDS and self.values else None

    @property
    def dead_share(self) -> float | None:
        return self.dead / self.units if self.function in _SILENT and self.units else None


class ActivationWatch(TorchFunctionMode):
    """``owner`` gives a key for whichever layer is running; read ``found`` by these keys."""

    def __init__(self, owner: Callable[[], Any]) -> None:
        super().__init__()
        self.found: dict[Any, Activity] = {}
        self._owner = owner

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "").rstrip("_")
        if (name in _BOUNDS or name in _SILENT) and isinstance(result, torch.Tensor):
            with torch.no_grad():
                self._count(name, args, kwargs or {}, result.detach())
        return result

    def _count(self, name: str, args: Any, kwargs: dict[str, Any], result: torch.Tensor) -> None:
        activity = self.found.setdefault(self._owner(), Activity(name))
        if name in _SILENT:
            units = _by_unit(result)
            activity.units += units.shape[1]
            activity.dead += int((units == 0).all(0).sum())
            return
        low, high = _BOUNDS[name]
        if name == "hardtanh":
            given = {
                "min_val": low,
                "max_val": high,
                **kwargs,
                **dict(zip(("min_val", "max_val"), args[1:3], strict=False)),
            }
            low, high = given["min_val"], given["max_val"]
            activity.at_bound += int(((args[0] == low) | (args[0] == high)).sum())
        margin = NEAR * ((high - low) if low is not None and high is not None else 1.0)
        outside = torch.zeros_like(result, dtype=torch.bool)
        if low is not None:
            outside |= result <= low + margin
        if high is not None:
            outside |= result >= high - margin
        activity.values += result.numel()
        activity.saturated += int(outside.sum())


def _by_unit(result: torch.Tensor) -> torch.Tensor:
    """(samples and positions, units): channels are dimension 1 of images, the last dimension otherwise."""
    if result.ndim < 2:
        return result.reshape(1, -1)
    return (result.movedim(1, -1) if result.ndim > 3 else result).flatten(0, -2)
