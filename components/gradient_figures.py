"""The figures of the page on gradient flow: headline numbers, the view that was picked, the tables, from the wire form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd
import streamlit as st

from components.charts import clipping, depth
from components.palette import Theme
from components.training_map import KEYS, training_map
from lab.quantities import number_text, seconds_text

__all__ = ["KEYS", "draw", "draw_tables", "headline", "pick"]

Data = Mapping[str, Any]


class Picked(NamedTuple):
    """What the visitor wants to see."""

    view: str
    quantities: tuple[str, ...] = ()
    statistic: str = "norm"


VIEWS = ("Depth", "Training", "Clipping", "Shares")
_ROWS = 5_000
_NAMED = ("NaN", "Infinity", "-Infinity")
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


def theme() -> Theme:
    """The theme that the visitor sees."""
    return "dark" if st.context.theme.type == "dark" else "light"


def headline(result: Any) -> dict[str, float]:
    """What two runs are compared by. Takes the Result itself."""
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


def pick(key: str, results: Sequence[Data]) -> Picked:
    """The view, of which only one is drawn; for the view over depth also what is drawn."""
    clips = any(result["clipping"]["kind"] != "none" for result in results)
    with st.container(horizontal=True, vertical_alignment="center", key=f"{key}-pick"):
        views = [name for name in VIEWS if clips or name != "Clipping"]
        view = st.segmented_control(
            "View", views, default="Depth", required=True, key=f"{key}-view", label_visibility="collapsed"
        )
        if view != "Depth":
            return Picked(str(view))
        statistic = st.segmented_control(
            "Statistic",
            list(depth.STATISTICS),
            default="norm",
            required=True,
            key=f"{key}-stat",
            label_visibility="collapsed",
        )
    theory = any(layer["cotangent_grad_norm"] is not None for r in results for layer in r["layers"])
    offered = [name for name in depth.QUANTITIES if theory or name != "random cotangent"]
    chosen = st.pills(
        "Lines", offered, selection_mode="multi", default=offered[:2], key=f"{key}-lines", label_visibility="collapsed"
    )
    return Picked("Depth", tuple(name for name in offered if name in chosen) or (offered[0],), str(statistic))


def draw(picked: Picked, result: Data, key: str, together: Sequence[Data], *, presenter: bool) -> None:
    """Headline numbers and the picked view of one result; ``together``: all results that share its axes."""
    if not result["layers"]:
        return
    _metrics(picked.view, result, key, short=len(together) > 1)
    height = 600 if presenter else 440
    if picked.view == "Depth":
        domain = depth.domain_of([r["layers"] for r in together], picked.quantities, picked.statistic)
        what = result["layers"], picked.quantities, picked.statistic, theme(), domain
        _chart(
            depth.depth_chart(*what, height=height, font_px=18 if presenter else 12, narrow=len(together) > 1),
            key,
            "depth",
        )
    elif picked.view == "Training":
        training_map(result, key=f"{key}-map", presenter=presenter)
    elif picked.view == "Shares":
        _shares(result, key, height)
    else:
        _clipping(result, key, height)
    _conditions(result)


def _shares(result: Data, key: str, height: int) -> None:
    chart = depth.shares_chart(result["layers"], theme(), height=height)
    if chart is None:
        st.text("No share was measured: no activation function with bounds, and no gradient.")
    else:
        _chart(chart, key, "shares")


def _clipping(result: Data, key: str, height: int) -> None:
    if result["clipping"]["kind"] == "none" or not result["clipping"]["steps"]:
        st.text("This run does not clip.")
        return
    _chart(clipping.norms_chart(result["clipping"], theme(), height=height * 12 // 20), key, "norms")
    _chart(clipping.layers_chart(result["layers"], theme(), height=height * 12 // 20), key, "clipped")


def _chart(chart: depth.Layered | alt.Chart, key: str, name: str) -> None:
    st.altair_chart(chart, key=f"{key}-{name}", width="stretch")


def _metrics(view: str, result: Data, key: str, *, short: bool) -> None:
    """Three numbers in a row; the same place in every view, so that nothing jumps."""
    with st.container(key=f"{key}-headline"):
        for column, (name, value, against) in zip(st.columns(3), _NUMBERS[view](result), strict=False):
            with column.container(gap=None):
                st.caption(name)
                st.markdown(f"#### {value}")
                if not short:
                    st.caption(against)


def _depth_numbers(result: Data) -> list[tuple[str, str, str]]:
    head, prediction = result["headline"], result["prediction"]
    slope, predicted = head["decades_per_layer"], prediction["decades_per_layer"]
    measured = prediction["measured_decades_per_layer"]
    inner = [layer["name"] for layer in result["layers"] if layer["inner"]]
    ends = f"activation gradient, {inner[0]} / {inner[-1]}" if inner else "activation gradient"
    numbers = [("First / last layer", _text(head["activation_grad_ratio"]), ends)]
    numbers.append(("Decades per layer", _text(slope), "of the activation gradient on its way back"))
    if predicted is not None:
        numbers.append(
            (
                "Predicted",
                _text(predicted),
                f"½·log₁₀ χ with χ = {_text(prediction['chi'])}; random cotangent measured: {_text(measured)}",
            )
        )
    else:
        numbers.append(("Predicted", "–", prediction["reason"].partition(":")[0]))
    return numbers


def _training_numbers(result: Data) -> list[tuple[str, str, str]]:
    first = result["loss"][0] if result["loss"] else None
    numbers = [
        (
            "Loss",
            f"{_text(first)} → {_text(result['final_loss'])}",
            f"{result['loss_name']}, {len(result['loss'])} steps",
        )
    ]
    if result["first_nonfinite"]:
        where = result["first_nonfinite"]
        numbers.append(
            ("First non-finite", f"step {result['first_nonfinite_step']}", f"{where['layer']}: {where['operation']}")
        )
    return numbers


def _clip_numbers(result: Data) -> list[tuple[str, str, str]]:
    found = result["clipping"]
    if not found["steps"]:
        return []
    first = found["steps"][0]
    returned = "nothing is returned" if first["returned"] is None else f"returned {_text(first['returned'])}"
    return [
        ("Norm at step 1", f"{_text(first['norm_before'])} → {_text(first['norm_after'])}", returned),
        ("Cosine", _text(first["cosine"]), "before against after; 1 keeps the direction"),
        ("Steps clipped", f"{found['clipped_share']:.0%}", f"of {len(found['steps'])}, limit {_text(found['limit'])}"),
    ]


def _share_numbers(result: Data) -> list[tuple[str, str, str]]:
    numbers = []
    for name in ("zero in fp16", "saturated", "silent units"):
        found = [
            (layer[depth.SHARES[name]], layer["name"])
            for layer in result["layers"]
            if layer[depth.SHARES[name]] is not None
        ]
        if found:
            share, layer = max(found, key=lambda pair: pair[0])
            numbers.append((name.capitalize(), f"{share:.1%}", f"at most, in {layer}"))
    return numbers


_NUMBERS = {"Depth": _depth_numbers, "Training": _training_numbers, "Clipping": _clip_numbers, "Shares": _share_numbers}


def _conditions(result: Data) -> None:
    """What a norm must be read with."""
    parts = [f"loss: {result['loss_name']}"]
    if result["settings"]["family"] != "own":
        parts.append(f"{result['settings']['reduction']} over {result['batch_size']} samples")
    elif result["batch_size"]:
        parts.append(f"{result['batch_size']} samples")
    parts.append(f"{result['dtype']}, {result['parameters']:,} parameters")
    if result["instrument_s"] is not None:
        cost = float(result["instrument_s"])
        parts.append(
            f"watching costs {seconds_text(cost)} a step"
            if cost > 0
            else "watching a step costs less than the clock can tell"
        )
    st.caption(" · ".join(parts))


def draw_tables(result: Data, key: str) -> None:
    """The numbers behind the figures; nothing where nothing was measured."""
    if not result["layers"]:
        return
    layers, steps, clipped = st.tabs(["Layers", "Steps", "Clipping"])
    with layers:
        _table(result["layers"], _COLUMNS, f"{key}-layers")
        if result["layers_cut"]:
            st.caption(f"{result['layers_cut']} more layers are not kept.")
    with steps:
        _table(_step_rows(result), _STEP_COLUMNS, f"{key}-steps")
    with clipped:
        _table(result["clipping"]["steps"], _CLIP_COLUMNS, f"{key}-clip")
        norms = result["clipping"]["total_norms"]
        if norms:
            words = ", ".join(
                f"{'' if 'sum' in name else 'type '}{name} {_text(value)}" for name, value in norms.items()
            )
            st.caption(f"Norm of all gradients at step 1, before clipping: {words}.")


def _step_rows(result: Data) -> list[dict[str, Any]]:
    quantities = [name for name in _STEP_COLUMNS if name not in ("step", "layer")]
    return [
        {"step": s["step"], "layer": layer["name"], **{q: s[q][i] if i < len(s[q]) else None for q in quantities}}
        for s in result["steps"]
        for i, layer in enumerate(result["layers"])
    ]


def _table(rows: Sequence[Data], known: Mapping[str, tuple[str, str, str | None]], key: str) -> None:
    """Only the columns in which something stands."""
    columns = {name: about for name, about in known.items() if any(row[name] not in (None, "") for row in rows)}
    odd = {name for name in columns if any(row[name] in _NAMED for row in rows)}  # a table shows NaN as None
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


def _cell(value: Any) -> str | None:
    return None if value is None else number_text(float(value))


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{float(value):.3g}".replace("-", "−") if math.isfinite(float(value)) else number_text(float(value))
