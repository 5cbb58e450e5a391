"""The theory for the network that was measured, and slopes over depth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.experiments.gradient_flow.schema import Params
from lab.instruments.gradients.mean_field import propagate
from lab.records.gradients import Prediction
from lab.workloads.deep_networks import ACTIVATIONS

SIGMA_W2 = {"default": 1 / 3, "xavier": 1.0, "kaiming": 2.0, "orthogonal": 1.0}
"""Width times the variance of a weight, at gain 1. default: U(-1/√n, 1/√n) has variance 1/(3n)."""
SPREAD = 0.45
"""Standard deviation of a fitted slope over seeds, in units of √(depth / width) / depth decades: 0.43 for ReLU, 0.1 to 0.3
for tanh, sigmoid, SELU and linear layers (14 seeds each, depth 10 to 40, width 64 and 128)."""
_ALL_BELOW = 8


def slope(values: Sequence[float | None]) -> float | None:
    """Decades a layer on the way back: least squares through log10 of ``values`` over the inner half of the depth.

    The outer quarters feel the input and the loss. Zeros (underflow), NaN and None are left out; None below two points.
    """
    margin = len(values) // 4 if len(values) >= _ALL_BELOW else 0
    points = [
        (depth, math.log10(value))
        for depth, value in enumerate(values)
        if margin <= depth < len(values) - margin and value is not None and 0 < value < math.inf
    ]
    if len(points) < 2:
        return None
    x_mean, y_mean = (sum(column) / len(points) for column in zip(*points, strict=True))
    return 0.0 - sum((x - x_mean) * (y - y_mean) for x, y in points) / sum((x - x_mean) ** 2 for x, _ in points)


def ratio(values: Sequence[float | None]) -> float | None:
    """First against last; None when either is missing or both are zero."""
    if len(values) < 2 or values[0] is None or values[-1] is None:
        return None
    first, last = values[0], values[-1]
    if last == 0:
        return math.inf if first > 0 else None
    return first / last


def predict(
    params: Params, input_square: float | None, measured: Sequence[float | None]
) -> tuple[Prediction, list[float | None]]:
    """The prediction, and the predicted norm at each inner layer. ``measured``: the norms that a random cotangent left there."""
    reason = _no_closed_form(params)
    empty: list[float | None] = [None] * len(measured)
    if reason or input_square is None:
        return Prediction(False, reason, measured_decades_per_layer=slope(measured)), empty
    sigma_w2 = SIGMA_W2[params.init] * params.gain**2
    sigma_b2 = 1 / (3 * params.width) if params.init == "default" else 0.0
    theory = propagate(
        params.activation,
        ACTIVATIONS[params.activation](),
        sigma_w2=sigma_w2,
        sigma_b2=sigma_b2,
        input_square=input_square,
        depth=params.depth,
    )
    norms = _norms(theory.chi, measured[-1])
    # the slope is fitted where something was measured: below the smallest number of the dtype nothing can be
    seen = [n if m is not None and 0 < m < math.inf else None for n, m in zip(norms, measured, strict=True)]
    limit = 0.5 * math.log10(theory.fixed_chi) if theory.fixed_chi > 0 else None
    found = Prediction(
        True,
        "",
        sigma_w2,
        sigma_b2,
        chi=theory.fixed_chi,
        q=theory.fixed_q,
        limit_decades_per_layer=limit,
        decades_per_layer=slope(seen) if any(seen) else limit,
        measured_decades_per_layer=slope(measured),
        tolerance=3 * SPREAD * math.sqrt(params.depth / params.width) / params.depth,
    )
    return found, norms


def _norms(chi: Sequence[float], last: float | None) -> list[float | None]:
    """Backwards from the last layer: entering layer l, the mean square is multiplied by χ of that layer."""
    norms: list[float | None] = [last]
    for factor in reversed(chi[1:]):
        below = norms[-1]
        norms.append(None if below is None else below * math.sqrt(factor))
    return norms[::-1]


def _no_closed_form(params: Params) -> str:
    if params.family == "own":
        return "No closed form: the theory needs equal, independent layers, and this is a model of your own."
    if params.family != "mlp":
        shared = "share their weights" if params.family == "rnn" else "mix the tokens"
        return f"No closed form: the theory is for an MLP with independent layers; these {shared}."
    if params.norm_used != "none" or params.residual_used:
        what = "residual paths" if params.residual_used else f"{params.norm_used} normalisation"
        return f"No closed form with {what}: the theory here is for plain layers."
    return "No closed form with gain 0: nothing passes." if params.gain == 0 else ""
