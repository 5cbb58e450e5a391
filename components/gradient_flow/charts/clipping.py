"""Clipping: the norm of all gradients at every step, and of each layer at the first, before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from components.gradient_flow.charts.depth import Layered, decades_axis, ink, layer_axis
from components.kit.palette import MEMORY, Theme
from lab.quantities import number_text
from lab.records.gradients import Clipping, Layer

_BEFORE, _AFTER, _RETURNED, _LIMIT = "before", "after", "returned by clip_grad_norm_", "limit"
_HUES = {_BEFORE: "gradients", _AFTER: "parameters", _RETURNED: "optimizer state"}


def norms_chart(clipping: Clipping, theme: Theme, *, height: int = 300) -> Layered:
    """Norm of all gradients together, over the steps."""
    names = {_BEFORE: "norm_before", _AFTER: "norm_after", _RETURNED: "returned"}
    rows = [
        (step.step, name, value)
        for step in clipping.steps
        for name, key in names.items()
        if (value := getattr(step, key)) is not None
    ]
    limit = clipping.limit if clipping.kind == "norm" else None
    frame, domain = _frame(rows, ["step", "series", "value"], limit)
    drawn = {name for _, name, _ in rows}
    found = [name for name in names if name in drawn] + ([_LIMIT] if limit and limit > 0 else [])
    color = _color(found, theme)
    x = alt.X("step:Q", axis=alt.Axis(title="training step", format="d", tickMinStep=1, grid=False))
    y = _y(f"{clipping.norm_type}-norm of all (log)", domain)
    tooltip = [alt.Tooltip("step:Q"), alt.Tooltip("series:N", title="norm"), alt.Tooltip("shown:N", title="value")]
    is_returned = frame["series"] == _RETURNED
    finite = frame["drawable"]
    line = (
        alt.Chart(frame[~is_returned & finite])
        .mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=40))
        .encode(x, y, color, tooltip=tooltip)
    )
    rings = (
        alt.Chart(frame[is_returned & finite])
        .mark_point(size=140, strokeWidth=2, filled=False)
        .encode(x, y, color, tooltip=tooltip)
    )
    edge = _edge(frame, x, y, color, tooltip=tooltip)
    layers = [line, rings, *edge]
    if limit and limit > 0:
        rule = alt.Chart(pd.DataFrame({"at": [limit], "series": [_LIMIT]})).mark_rule(strokeDash=[6, 4], strokeWidth=2)
        layers.insert(0, rule.encode(alt.Y("at:Q"), color))
    described = {
        "height": height,
        "description": f"Norm of all gradients before and after clipping over {len(clipping.steps)} steps.",
    }
    return alt.layer(*layers).properties(**described)


def layers_chart(layers: Sequence[Layer], theme: Theme, *, height: int = 300) -> Layered:
    """Weight gradients of each layer at the first step, before and after: one line joins the two."""
    rows = [
        (i, layer.name, name, value)
        for i, layer in enumerate(layers, 1)
        for name, key in ((_BEFORE, "weight_grad_norm"), (_AFTER, "clipped_grad_norm"))
        if (value := getattr(layer, key)) is not None
    ]
    frame, domain = _frame(rows, ["position", "layer", "series", "value"], None)
    x = layer_axis(layers)
    y = _y("weight gradient norm (log)", domain)
    color = _color([_BEFORE, _AFTER], theme)
    tooltip = [alt.Tooltip("layer:N"), alt.Tooltip("series:N", title="norm"), alt.Tooltip("shown:N", title="value")]
    joined = (
        alt.Chart(frame)
        .mark_line(strokeWidth=1.5, opacity=0.5, color=ink(theme))
        .encode(x, y, alt.Detail("position:Q"))
    )
    points = alt.Chart(frame[frame["drawable"]]).mark_circle(size=90, opacity=1).encode(x, y, color, tooltip=tooltip)
    edge = _edge(frame, x, y, color, tooltip=tooltip)
    described = {
        "height": height,
        "description": f"Weight gradients of {len(layers)} layers before and after clipping.",
    }
    return alt.layer(joined, points, *edge).properties(**described)


def _frame(rows: list[Any], columns: list[str], extra: float | None) -> tuple[pd.DataFrame, tuple[float, float]]:
    """Zeros stand at the bottom of the axis, what is not finite at its top."""
    frame = pd.DataFrame(rows, columns=columns)
    finite = [v for v in (*frame["value"], extra) if v is not None and 0 < v < math.inf]
    low = 10.0 ** math.floor(math.log10(min(finite)) - 0.1) if finite else 0.1
    high = 10.0 ** math.ceil(math.log10(max(finite)) + 0.1) if finite else 1.0
    frame["drawable"] = [0 < v < math.inf for v in frame["value"]]
    frame["at"] = [v if d else low if v == 0 else high for v, d in zip(frame["value"], frame["drawable"], strict=True)]
    frame["shown"] = [number_text(v) for v in frame["value"]]
    return frame, (low, high)


def _y(title: str, domain: tuple[float, float]) -> alt.Y:
    return alt.Y(
        "at:Q", axis=decades_axis(title, domain, 5), scale=alt.Scale(type="log", domain=list(domain), nice=False)
    )


def _edge(frame: pd.DataFrame, *encodings: Any, tooltip: list[alt.Tooltip]) -> list[alt.Chart]:
    """Zeros, NaN and infinities by name, the series below each other; what several have in common once."""
    hidden = frame["drawable"] | frame.duplicated([str(frame.columns[0]), "shown"])
    rows = frame[~hidden]
    series = list(dict.fromkeys(rows["series"]))
    return [
        alt.Chart(rows[rows["series"] == name])
        .mark_text(fontWeight="bold", fontSize=13, dy=13 * i)
        .encode(*encodings, alt.Text("shown:N"), tooltip=tooltip)
        for i, name in enumerate(series)
    ]


def _color(names: Sequence[str], theme: Theme) -> alt.Color:
    scale = alt.Scale(
        domain=list(names), range=[ink(theme) if name == _LIMIT else MEMORY[theme][_HUES[name]] for name in names]
    )
    return alt.Color("series:N", scale=scale, legend=alt.Legend(title=None, orient="top", labelLimit=320))
