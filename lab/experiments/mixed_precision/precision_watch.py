"""Scalers, clipping and optimizer steps of a program, seen while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lab import torch_private
from lab.experiments.mixed_precision.dtype_trace import HALVES
from lab.program.passing import Passing, line_now

_COPIED = 2_000_000


@dataclass
class ScalerStory:
    """One gradient scaler."""

    scaler: Any
    line: int
    scales: list[float] = field(default_factory=list)
    """Before each step."""
    skipped: list[bool] = field(default_factory=list)
    pending: bool = False
    """Something was scaled since the last update."""
    unscaled: bool = False


@dataclass
class LostStory:
    """One optimizer over weights of 16 bits."""

    line: int
    dtype: str
    lr: float
    asked: int = 0
    """Weights with a gradient that is not 0, over all steps."""
    moved: int = 0
    steps: int = 0
    eps_zero: bool = False


@dataclass
class Clipped:
    """A clipping while gradients were scaled."""

    line: int
    scale: float
    norm: float


class PrecisionWatch:
    """Context manager around the run of a program in this thread."""

    def __init__(self) -> None:
        self.scalers: dict[int, ScalerStory] = {}
        self.clipped: list[Clipped] = []
        self.past: list[tuple[int, float]] = []
        """(line, scale) of optimizer steps over gradients that are still scaled."""
        self.lost: dict[int, LostStory] = {}
        self._made: dict[int, int] = {}
        self._fired = False
        self._before: dict[int, torch.Tensor] = {}
        self._passing = Passing()

    def __enter__(self) -> PrecisionWatch:
        for hook in (register_optimizer_step_pre_hook(self._pre), register_optimizer_step_post_hook(self._post)):
            self._passing.at_end(torch_private.remove_global_hook, hook)
        self._passing.wrap(Optimizer, "__init__", self._make)
        for name, around in (
            ("__init__", self._scaler_made), ("scale", self._scale), ("unscale_", self._unscale), ("step", self._step),
            ("update", self._update),
        ):  # fmt: skip
            self._passing.wrap(torch.amp.GradScaler, name, around)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            self._passing.wrap(nn.utils, name, self._clip)
        return self

    def __exit__(self, *error: object) -> None:
        self._passing.close()

    def _make(self, original: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        answer = original(optimizer, *args, **kwargs)
        self._made[id(optimizer)] = line_now()
        return answer

    def _scaler_made(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(scaler, *args, **kwargs)
        self.scalers[id(scaler)] = ScalerStory(scaler, line_now())
        return answer

    def _scale(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(scaler, *args, **kwargs)
        story = self.scalers.get(id(scaler))
        if story is not None and scaler.is_enabled():
            story.pending, story.unscaled = True, False
        return answer

    def _unscale(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(scaler, *args, **kwargs)
        if id(scaler) in self.scalers:
            self.scalers[id(scaler)].unscaled = True
        return answer

    def _step(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        story, scale, self._fired = self.scalers.get(id(scaler)), float(scaler.get_scale()), False
        answer = original(scaler, *args, **kwargs)
        if story is not None and scaler.is_enabled():
            story.scales.append(scale)
            story.skipped.append(not self._fired)
        return answer

    def _update(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(scaler, *args, **kwargs)
        story = self.scalers.get(id(scaler))
        if story is not None:
            story.pending = story.unscaled = False
        return answer

    def _clip(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        scaled = self.still_scaled()
        if scaled is not None and len(self.clipped) < 100:
            norm = float(answer) if isinstance(answer, torch.Tensor) else 0.0
            self.clipped.append(Clipped(line_now(), scaled, norm))
        return answer

    def still_scaled(self) -> float | None:
        """The scale that gradients carry now; None where they carry none."""
        for story in self.scalers.values():
            if story.pending and not story.unscaled and story.scaler.is_enabled() and story.scaler.get_scale() != 1.0:
                return float(story.scaler.get_scale())
        return None

    def _pre(self, optimizer: Optimizer, *rest: Any) -> None:
        self._before = {id(p): p.detach().clone() for p in _halves(optimizer)}
        scaled = self.still_scaled() if not self._passing.depth else None
        if scaled is not None and len(self.past) < 100:
            self.past.append((line_now(), scaled))

    def _post(self, optimizer: Optimizer, *rest: Any) -> None:
        self._fired = True
        for p in _halves(optimizer):
            before, grad = self._before.get(id(p)), p.grad
            if before is None or grad is None:
                continue
            group = optimizer.param_groups[0]
            made = self._made.get(id(optimizer), 0)
            story = self.lost.setdefault(
                id(optimizer), LostStory(made, str(p.dtype).removeprefix("torch."), float(group.get("lr", 0.0)))
            )
            asked = grad != 0
            story.asked += int(asked.sum())
            story.moved += int(((p.detach() != before) & asked).sum())
            story.steps += 1
            sound = bool(before.isfinite().all()) and bool(grad.isfinite().all())
            eps = group.get("eps")
            gone = eps is not None and float(torch.tensor(float(eps), dtype=p.dtype)) == 0.0
            story.eps_zero |= sound and gone and not bool(p.detach().isfinite().all())
        self._before = {}


def _halves(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.dtype in HALVES and p.grad is not None and p.numel() <= _COPIED and not p.grad.is_sparse:
                yield p
