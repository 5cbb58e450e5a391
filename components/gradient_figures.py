"""The figures of the page on gradient flow: headline numbers, the view that was picked, the tables, from the wire form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from components.charts import clipping, depth
from components.palette import Theme
from components.training_map import KEYS, training_map
from lab.quantities import number_text, seconds_text

__all__ = ["KEYS", "draw", "draw_tables", "headline", "pick_lines", "pick_view"]

Data = Mapping[str, Any]
Lines = tuple[tuple[str, ...], str]
"""Quantities over depth, and the statistic."""
VIEWS = ("Depth", "Training", "Clipping", "Shares")
_ROWS = 5_000
_COLUMNS = {
    "name": "Module, or position in the network.",
    "why_none": "Why there is no gradient, or why it is exactly zero.",
    "weight_grad_norm": "Euclidean norm of the gradient of the layer's weights.",
    "clipped_grad_norm": "The same after clipping.",
    "bias_grad_norm": "Of the gradient of the biases.",
    "activation_grad_norm": "Of the gradient of the layer's output.",
    "cotangent_grad_norm": "The same when a random tensor is sent back instead of the loss's gradient.",
    "predicted_grad_norm": "What the theory says to that, from the last layer back.",
    "activation_rms": "Root mean square of the layer's output.",
    "update_ratio": "Norm of the weights' change at the first step against their norm.",
    "weight_grad_rms": "",
    "weight_grad_mean": "",
    "weight_grad_max": "Largest magnitude.",
    "activation_grad_rms": "",
    "activation_mean": "",
    "activation_max": "Largest magnitude.",
    "saturated_share": "Values of the activation function within 1 % of a bound.",
    "dead_share": "Units that are zero for the whole batch.",
    "underflow_fp16_share": "Weight gradients, zeros aside, that would be zero in fp16.",
    "underflow_bf16_share": "The same in bf16.",
    "parameters": "Numbers in weights and biases.",
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


def pick_view(key: str, *, clips: bool) -> str:
    """The views to choose from; only the one that is picked is drawn."""
    names = [name for name in VIEWS if clips or name != "Clipping"]
    picked = st.segmented_control("View", names, default="Depth", required=True, key=key, label_visibility="collapsed")
    return str(picked)


def pick_lines(key: str, results: Sequence[Data]) -> Lines:
    """Which quantities are drawn over depth, and which of their statistics."""
    theory = any(layer["cotangent_grad_norm"] is not None for r in results for layer in r["layers"])
    offered = [name for name in depth.QUANTITIES if theory or name != "random cotangent"]
    with st.container(horizontal=True, vertical_alignment="center", key=f"{key}-pick"):
        chosen = st.pills(
            "Lines",
            offered,
            selection_mode="multi",
            default=offered[:2],
            key=f"{key}-lines",
            label_visibility="collapsed",
        )
        statistic = st.segmented_control(
            "Statistic",
            list(depth.STATISTICS),
            default="norm",
            required=True,
            key=f"{key}-stat",
            label_visibility="collapsed",
        )
    return tuple(name for name in offered if name in chosen) or (offered[0],), str(statistic)


def draw(view: str, result: Data, key: str, together: Sequence[Data], lines: Lines, *, presenter: bool) -> None:
    """Headline numbers and the picked view of one result; ``together``: all results that share its axes."""
    if not result["layers"]:
        return
    _metrics(view, result, key)
    height = 620 if presenter else 420
    if view == "Depth":
        quantities, statistic = lines
        domain = depth.domain_of([r["layers"] for r in together], quantities, statistic)
        _chart(depth.depth_chart(result["layers"], quantities, statistic, theme(), domain, height=height), key, "depth")
    elif view == "Training":
        training_map(result, key=f"{key}-map", presenter=presenter)
    elif view == "Shares":
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
    _chart(clipping.norms_chart(result["clipping"], theme(), height=height * 9 // 20), key, "norms")
    _chart(clipping.layers_chart(result["layers"], theme(), height=height * 11 // 20), key, "clipped")


def _chart(chart: depth.Layered | alt.Chart, key: str, name: str) -> None:
    st.altair_chart(chart, key=f"{key}-{name}", width="stretch")


def _metrics(view: str, result: Data, key: str) -> None:
    """Three numbers in a row; the same place in every view, so that nothing jumps."""
    with st.container(key=f"{key}-headline"):
        for column, (name, value, against) in zip(st.columns(3), _NUMBERS[view](result), strict=False):
            with column.container(gap=None):
                st.caption(name)
                st.markdown(f"#### {value}")
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
                f"½·log₁₀ χ, χ = {_text(prediction['chi'])}; a random cotangent: {_text(measured)}",
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
    """The numbers behind the figures."""
    layers, steps, clipped = st.tabs(["Layers", "Steps", "Clipping"])
    with layers:
        helps = {
            name: text
            for name, text in _COLUMNS.items()
            if any(layer[name] not in (None, "") for layer in result["layers"])
        }
        _table([{name: _plain(layer[name]) for name in helps} for layer in result["layers"]], helps, f"{key}-layers")
        if result["layers_cut"]:
            st.caption(f"{result['layers_cut']} more layers are not kept.")
    with steps:
        rows = [
            {"step": s["step"], "layer": layer["name"], **{q: _plain(s[q][i]) for q in ("weight_grad_norm", "activation_grad_norm", "activation_rms", "update_ratio") if i < len(s[q])}}
            for s in result["steps"]
            for i, layer in enumerate(result["layers"])
        ]  # fmt: skip
        _table(rows, {}, f"{key}-steps")
    with clipped:
        _table(
            [{name: _plain(value) for name, value in step.items()} for step in result["clipping"]["steps"]],
            {},
            f"{key}-clip",
        )
        if result["clipping"]["total_norms"]:
            norms = ", ".join(
                f"{'type ' if 'sum' not in k else ''}{k}: {_text(v)}"
                for k, v in result["clipping"]["total_norms"].items()
            )
            st.caption(f"Norm of all gradients at step 1 before clipping. {norms}.")


def _table(rows: list[dict[str, Any]], helps: Mapping[str, str], key: str) -> None:
    columns = {name: st.column_config.Column(help=text or None) for name, text in helps.items()}
    st.dataframe(pd.DataFrame(rows[:_ROWS]), hide_index=True, column_config=columns, key=key)
    if len(rows) > _ROWS:
        st.caption(f"The first {_ROWS:,} of {len(rows):,} rows.")


def _plain(value: Any) -> Any:
    """NaN and infinity by their wire names become numbers."""
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{float(value):.3g}".replace("-", "−") if math.isfinite(float(value)) else number_text(float(value))
