"""Single numbers read from a result: for the lessons, and for the line that a script prints last."""

from __future__ import annotations

import math
from collections.abc import Callable

from lab.experiments.gradient_flow.schema import Result
from lab.records.gradients import ClipStep, Layer


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _inner(result: Result) -> list[Layer]:
    return [layer for layer in result.layers if layer.inner]


def _first_clip(result: Result) -> ClipStep:
    return result.clipping.steps[0]


READINGS: dict[str, Callable[[Result], float]] = {
    "slope": lambda r: _number(r.headline.decades_per_layer),
    "ratio": lambda r: _number(r.headline.activation_grad_ratio),
    "underflow": lambda r: _number(_inner(r)[0].underflow_fp16_share),
    "bias": lambda r: _number(_inner(r)[0].bias_grad_norm) / _number(_inner(r)[0].weight_grad_norm),
    "total norm": lambda r: r.clipping.total_norms["2"],
    "cosine": lambda r: _number(_first_clip(r).cosine),
    "returned": lambda r: _number(_first_clip(r).returned),
    "norm after": lambda r: _first_clip(r).norm_after,
    "zeroed layers": lambda r: float(sum(layer.clipped_grad_norm == 0 for layer in _inner(r))),
    "clipped share": lambda r: _number(r.clipping.clipped_share),
    "final loss": lambda r: _number(r.final_loss),
    "missing": lambda r: float(sum(layer.weight_grad_norm is None for layer in r.layers)),
}
"""Name -> number. ``lessons.reading_of(params)`` says which belongs to which preset."""
NAMES = {
    "slope": "decades per layer on the way back",
    "ratio": "activation gradient, first layer / last",
    "underflow": "share of layer 1's gradient that is zero in fp16",
    "bias": "bias gradient / weight gradient in layer 1",
    "total norm": "norm of all gradients",
    "cosine": "cosine between the gradient before and after",
    "returned": "what clip_grad_norm_ returned",
    "norm after": "norm after clipping",
    "zeroed layers": "layers whose gradient became zero",
    "clipped share": "share of steps clipped",
    "final loss": "loss after the last step",
    "missing": "layers whose gradient is None",
}


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    found = {
        "activation gradient, first / last layer": result.headline.activation_grad_ratio,
        "weight gradient, first / last layer": result.headline.weight_grad_ratio,
        "decades per layer": result.headline.decades_per_layer,
        "predicted decades per layer": result.prediction.decades_per_layer,
        "loss at step 1": result.loss[0] if result.loss else None,
        "loss after the last step": result.final_loss,
        "share of steps clipped": result.clipping.clipped_share if result.clipping.limit is not None else None,
    }
    return {name: value for name, value in found.items() if value is not None}
