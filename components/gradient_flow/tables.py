"""The tables behind the figures of gradient flow: records -> rows with the help of each column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from components.gradient_flow.figures import text
from lab.quantities import number_text
from lab.records.gradients import GradientResult

_ROWS = 5_000
_SCIENTIFIC, _PERCENT = "%.3g", "percent"
_COLUMNS = {
    "name": ("layer", "Module, or position in the network.", None),
    "why_none": ("why none or zero", "Why there is no gradient, or why it is exactly zero.", None),
    "weight_grad_norm": ("weight gradient", "Euclidean norm of the gradient of the layer's weights.", _SCIENTIFIC),
    "clipped_grad_norm": ("after clipping", "The same after clipping.", _SCIENTIFIC),
    "bias_grad_norm": ("bias gradient", "Norm of the gradient of the biases.", _SCIENTIFIC),
    "activation_grad_norm": ("activation gradient", "Norm of the gradient of the layer's output.", _SCIENTIFIC),
    "cotangent_grad_norm": ("random cotangent", "The same when a random tensor is sent back.", _SCIENTIFIC),
    "predicted_grad_norm": ("predicted", "What the theory says to that, from the last layer back.", _SCIENTIFIC),
    "activation_rms": ("activation RMS", "Root mean square of the layer's output.", _SCIENTIFIC),
    "update_ratio": ("update ratio", "Norm of the weights' change at step 1 against their norm.", _SCIENTIFIC),
    "saturated_share": ("saturated", "Values of the activation function within 1 % of a bound.", _PERCENT),
    "dead_share": ("silent units", "Units that are zero for the whole batch.", _PERCENT),
    "underflow_fp16_share": ("zero in fp16", "Weight gradients, zeros aside, that would be zero.", _PERCENT),
    "underflow_bf16_share": ("zero in bf16", "The same in bf16.", _PERCENT),
    "weight_grad_rms": ("weight gradient RMS", "", _SCIENTIFIC),
    "weight_grad_mean": ("weight gradient mean", "", _SCIENTIFIC),
    "weight_grad_max": ("weight gradient max", "Largest magnitude.", _SCIENTIFIC),
    "activation_grad_rms": ("activation gradient RMS", "", _SCIENTIFIC),
    "activation_grad_mean": ("activation gradient mean", "", _SCIENTIFIC),
    "activation_grad_max": ("activation gradient max", "Largest magnitude.", _SCIENTIFIC),
    "activation_mean": ("activation mean", "", _SCIENTIFIC),
    "activation_max": ("activation max", "Largest magnitude.", _SCIENTIFIC),
    "parameters": ("parameters", "Numbers in weights and biases.", None),
}
_STEP_COLUMNS = {
    "step": ("step", "", None),
    "layer": ("layer", "", None),
    **{q: _COLUMNS[q] for q in ("weight_grad_norm", "activation_grad_norm", "activation_rms", "update_ratio")},
}
_CLIP_COLUMNS = {
    "step": ("step", "", None),
    "norm_before": ("norm before", "Of all gradients as one vector, in float64.", _SCIENTIFIC),
    "norm_after": ("norm after", "", _SCIENTIFIC),
    "returned": (
        "returned",
        "What clip_grad_norm_ returned: the norm before, in the gradients' own dtype.",
        _SCIENTIFIC,
    ),
    "cosine": ("cosine", "Between before and after.", "%.6f"),
    "clipped": ("clipped", "Whether any value changed.", None),
    "changed_share": ("values changed", "", _PERCENT),
}


def draw_tables(result: GradientResult, key: str) -> None:
    """The numbers behind the figures; nothing where nothing was measured."""
    if not result.layers:
        return
    layers, steps, clipped = st.tabs(["Layers", "Steps", "Clipping"])
    with layers:
        _table([vars(layer) for layer in result.layers], _COLUMNS, f"{key}-layers")
        if result.layers_cut:
            st.caption(f"{result.layers_cut} more layers are not kept.")
    with steps:
        _table(_step_rows(result), _STEP_COLUMNS, f"{key}-steps")
    with clipped:
        _table([vars(step) for step in result.clipping.steps], _CLIP_COLUMNS, f"{key}-clip")
        norms = result.clipping.total_norms
        if norms:
            words = ", ".join(
                f"{'' if 'sum' in name else 'type '}{name} {text(value)}" for name, value in norms.items()
            )
            st.caption(f"Norm of all gradients at step 1, before clipping: {words}.")


def _step_rows(result: GradientResult) -> list[dict[str, Any]]:
    quantities = [name for name in _STEP_COLUMNS if name not in ("step", "layer")]
    return [
        {
            "step": step.step,
            "layer": layer.name,
            **{q: values[i] if i < len(values) else None for q, values in of.items()},
        }
        for step in result.steps
        for of in [{quantity: getattr(step, quantity) for quantity in quantities}]
        for i, layer in enumerate(result.layers)
    ]


def _table(rows: Sequence[Mapping[str, Any]], known: Mapping[str, tuple[str, str, str | None]], key: str) -> None:
    """Only the columns in which something stands."""
    columns = {name: about for name, about in known.items() if any(row[name] not in (None, "") for row in rows)}
    odd = {name for name in columns if any(_is_odd(row[name]) for row in rows)}  # a table shows NaN as None
    shown = [{name: _cell(row[name]) if name in odd else row[name] for name in columns} for row in rows[:_ROWS]]
    configs = {
        name: _column(label, about, None if name in odd else form) for name, (label, about, form) in columns.items()
    }
    st.dataframe(pd.DataFrame(shown), hide_index=True, column_config=configs, key=key)
    if len(rows) > _ROWS:
        st.caption(f"The first {_ROWS:,} of {len(rows):,} rows.")


def _column(label: str, about: str, number_format: str | None) -> Any:
    if number_format is None:
        return st.column_config.Column(label, help=about or None)
    return st.column_config.NumberColumn(label, help=about or None, format=number_format)


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _cell(value: float | None) -> str | None:
    return None if value is None else number_text(value)
