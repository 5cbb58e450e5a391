"""From the record of a training to the cells of the heat map.

NOTE How colours are chosen.
1. A cell is compared with a reference: for gradients and activations the last inner layer at the first step, for update
   ratios 10^-3, the usual advice. Equal to it is healthy; the scale runs over as many decades as needed, 2 to 8.
2. Below the scale a cell has the colour of its end; zero is below every scale. NaN and infinity have a colour and a cross
   of their own. Nothing measured is left blank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.records.gradients import GradientResult
from lab.wire import encode

QUANTITIES = {
    "norm of the weight gradient": "weight_grad_norm",
    "norm of the activation gradient": "activation_grad_norm",
    "update ratio": "update_ratio",
    "RMS of the activation": "activation_rms",
}
_USUAL_UPDATE = 1e-3
_LEAST, _MOST = 2, 8


def training_scene(result: GradientResult) -> dict[str, Any]:
    """What the browser draws, in wire form: for each quantity the values of every layer at every step, reference and decades."""
    layers, steps = result.layers, result.steps
    inner = [i for i, layer in enumerate(layers) if layer.inner]
    quantities = []
    for name, key in QUANTITIES.items():
        columns = [getattr(step, key) for step in steps]
        rows = [[values[i] if i < len(values) else None for values in columns] for i in range(len(layers))]
        reference = _USUAL_UPDATE if key == "update_ratio" else _reference(rows, inner)
        green = (
            "usual for training"
            if key == "update_ratio"
            else f"{layers[inner[-1]].name} at step 1"
            if inner
            else "step 1"
        )
        quantities.append(
            {"name": name, "rows": rows, "reference": reference, "green": green, "decades": _decades(rows, reference)}
        )
    drawn = {
        "layers": [layer.name for layer in layers],
        "loss": result.loss,
        "quantities": quantities,
        "description": f"Heat map of {len(layers)} layers over {len(steps)} training steps, with the loss curve.",
    }
    return encode(drawn)


def _reference(rows: Sequence[Sequence[Any]], inner: Sequence[int]) -> float:
    """The last inner layer that has a positive finite value at the first step; 1 without one."""
    for i in reversed(inner or range(len(rows))):
        value = rows[i][0] if rows[i] else None
        if isinstance(value, (int, float)) and 0 < value < math.inf:
            return float(value)
    return 1.0


def _decades(rows: Sequence[Sequence[Any]], reference: float) -> int:
    values = [v for row in rows for v in row if isinstance(v, (int, float)) and 0 < v < math.inf]
    furthest = max((abs(math.log10(v / reference)) for v in values), default=0.0)
    return max(_LEAST, min(_MOST, math.ceil(furthest)))
