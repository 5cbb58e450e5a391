"""What the watch saw of a layer -> numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lab.experiments.gradient_flow.clip import SCALE
from lab.instruments.gradients.activation_watch import Activity
from lab.instruments.gradients.layer_watch import COTANGENT, LOSS, Into, Watched
from lab.instruments.gradients.norms import Summary, summary, underflow_share
from lab.records.gradients import Layer, TrainingStep


def first_layer(layer: Watched, seen: Mapping[Any, Activity], inner: bool, scale: float) -> Layer:
    """Everything about one layer after the backward pass. ``scale``: by which the loss was multiplied."""
    gradients = _gradients(layer.weights())
    weight, bias = _unscaled(summary(gradients), scale), _unscaled(summary(_gradients(layer.biases())), scale)
    coming, cotangent = _arrived(layer, LOSS, scale), _arrived(layer, COTANGENT, 1.0)
    out = layer.activation.read()
    activity = seen.get(layer)
    return Layer(
        name=layer.name,
        kind=layer.kind,
        inner=inner,
        parameters=sum(p.numel() for p in (layer.stored or layer.weights)()) + sum(p.numel() for p in layer.biases()),
        **_fields("weight_grad", weight),
        bias_grad_norm=bias.norm if bias else None,
        clipped_grad_norm=None,
        **_fields("activation_grad", coming),
        **_fields("activation", out),
        cotangent_grad_norm=cotangent.norm if cotangent else None,
        predicted_grad_norm=None,
        saturated_share=activity.saturated_share if activity else None,
        dead_share=activity.dead_share if activity else None,
        update_ratio=None,
        underflow_fp16_share=underflow_share(gradients, torch.float16, 1 / scale),
        underflow_bf16_share=underflow_share(gradients, torch.bfloat16, 1 / scale),
        underflow_fp16_scaled_share=underflow_share(gradients, torch.float16, SCALE / scale),
        hardtanh_at_bound=activity.at_bound if activity else 0,
        why_none=_why(layer, weight),
    )


def summaries(layers: Sequence[Watched], step: int, loss: float, scale: float) -> TrainingStep:
    """One step in short."""
    weights = [_unscaled(summary(_gradients(layer.weights()), norm_only=True), scale) for layer in layers]
    outs = [layer.activation.read() for layer in layers]
    arrived = [_arrived(layer, LOSS, scale) for layer in layers]
    return TrainingStep(
        step,
        loss,
        tuple(s.norm if s else None for s in weights),
        tuple(s.norm if s else None for s in arrived),
        tuple(s.rms if s else None for s in outs),
        (),
    )


def _gradients(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [t.grad for t in tensors if t.grad is not None]


def _arrived(layer: Watched, into: Into, scale: float) -> Summary | None:
    moments = layer.gradients.get(into)
    return _unscaled(moments.read(), scale) if moments else None


def _unscaled(found: Summary | None, scale: float) -> Summary | None:
    if found is None or scale == 1:
        return found
    return Summary(found.norm / scale, found.rms / scale, found.mean / scale, found.max / scale)


def _fields(prefix: str, found: Summary | None) -> dict[str, Any]:
    return {f"{prefix}_{name}": getattr(found, name) if found else None for name in ("norm", "rms", "mean", "max")}


def _why(layer: Watched, weight: Summary | None) -> str:
    """Why there is no gradient, or why it is exactly zero."""
    if weight and weight.max == 0:
        arrived = layer.gradients.get(LOSS)
        found = arrived.read() if arrived else None
        if found and found.max == 0:
            return "zero: nothing arrives at its output, the gradient was multiplied by 0 or fell below the dtype's smallest number"
        return "zero: the gradient was multiplied by 0 on its way, or fell below the dtype's smallest number"
    if weight:
        return ""
    if layer.calls == 0 and not any(p.requires_grad for p in layer.weights()):
        return "None: requires_grad is False, and it did not run"
    if not any(p.requires_grad for p in layer.weights()):
        return "None: requires_grad is False"
    if layer.calls == 0:
        return "None: it did not run in the forward pass"
    if not layer.recorded:
        called = f", called on line {layer.line}" if layer.line else ""
        return f"None: it ran with gradients switched off (no_grad or inference mode){called}"
    return "None: it ran, but no path leads from it to the loss"
