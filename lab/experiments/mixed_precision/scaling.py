"""A GradScaler really run: scale over steps, skipped steps with their cause, clipping before and after unscaling."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from lab.experiments.mixed_precision.dtype_trace import FirstNonfinite
from lab.experiments.mixed_precision.formats import TYPES
from lab.experiments.mixed_precision.schema import Params
from lab.records.precision import ScalerStep
from lab.workloads.deep_classifier import a_batch, deep_classifier

_DEPTH, _ACTIVATION, _BAD = 4, "relu", 1e4


def scaler_steps(params: Params) -> Iterator[ScalerStep]:
    """Train a four-layer ReLU network; whether a step ran is told by the optimizer's own hook."""
    model = deep_classifier(_DEPTH, _ACTIVATION)
    optimizer = torch.optim.SGD(model.parameters(), lr=params.lr, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=params.init_scale, growth_interval=params.growth_interval)
    ran: list[bool] = []
    optimizer.register_step_post_hook(lambda *_: ran.append(True))
    for step in range(params.steps):
        ran.clear()
        scale = scaler.get_scale()
        optimizer.zero_grad()
        loss = _loss(model, params, step)
        scaler.scale(loss).backward()
        kind = _kind(model)
        if params.clip == "after":
            scaler.unscale_(optimizer)
        if params.clip != "off":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        skipped = not ran
        first, cause = _first(model, params, step, scale) if skipped and kind else ("", "")
        yield ScalerStep(step, scale, float(loss.detach()), skipped, cause or (kind if skipped else ""), first)  # type: ignore[arg-type]


def _loss(model: nn.Module, params: Params, step: int) -> torch.Tensor:
    inputs, classes = a_batch()
    if step == params.bad_step:
        inputs = inputs * _BAD
    with torch.autocast("cpu", dtype=TYPES[params.dtype], enabled=params.dtype != "fp32"):
        loss = F.cross_entropy(model(inputs), classes)
    return loss * math.nan if params.nan else loss


def _kind(model: nn.Module) -> str:
    """nan where a gradient holds one, else inf where one holds that, else nothing."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    if any(bool(g.isnan().any()) for g in grads):
        return "nan"
    return "inf" if any(bool(g.isinf().any()) for g in grads) else ""


def _first(model: nn.Module, params: Params, step: int, scale: float) -> tuple[str, str]:
    """(operation, inf or nan) that was first: the step once more under a watch, without touching ``.grad``."""
    with FirstNonfinite() as watch:
        loss = _loss(model, params, step)
        watch.backward = True
        torch.autograd.grad(loss * scale, list(model.parameters()))
    return watch.found, watch.kind
