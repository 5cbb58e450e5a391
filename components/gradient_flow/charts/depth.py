"""Norms over depth on a log axis, the theory's slope dashed beside them; shares over depth."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import altair as alt
import pandas as pd

from components.kit.palette import MEMORY, Theme
from lab.quantities import number_text
from lab.records.gradients import Layer

Domain = tuple[float, float]
Layered = alt.LayerChart | alt.FacetChart

QUANTITIES = {
    "activation gradient": "activation_grad",
    "weight gradient": "weight_grad",
    "activation": "activation",
    "random cotangent": "cotangent_grad",
}
"""Name -> prefix of the fields. The last is measured by its norm only."""
STATISTICS = {"norm": "norm", "RMS": "rms", "mean": "mean", "max": "max"}
SHARES = {
    "saturated": "saturated_share",
    "silent units": "dead_share",
    "zero in fp16": "underflow_fp16_share",
    "zero in fp16, loss × 65,536": "underflow_fp16_scaled_share",
    "zero in bf16": "underflow_bf16_share",
}
PREDICTED = "predicted (dashed)"
_HUES = {
    "activation gradient": "gradients",
    "weight gradient": "parameters",
    "activation": "weight casts",
    "random cotangent": "optimizer state",
    "saturated": "weight casts",
    "silent units": "temporaries",
    "zero in fp16": "gradients",
    "zero in fp16, loss × 65,536": "optimizer state",
    "zero in bf16": "inputs",
}
_SMALLEST = {
    "fp16 smallest normal": 2.0**-14,
    "fp16 smallest subnormal": 2.0**-24,
    "bf16 and fp32 smallest normal": 2.0**-126,
    "bf16 smallest subnormal": 2.0**-133,
    "fp32 smallest subnormal": 2.0**-149,
}
_MOST_NAMES, _TICKS = 12, 9


def ink(theme: Theme) -> str:
    """What is not measured: predictions, limits."""
    return MEMORY[theme]["temporaries" if theme == "light" else "unseen"]


def field(quantity: str, statistic: str) -> str:
    """Where a layer keeps this quantity; a cotangent is known by its norm."""
    return f"{QUANTITIES[quantity]}_{'norm' if quantity == 'random cotangent' else STATISTICS[statistic]}"


def domain_of(
    results: Sequence[Sequence[Layer]], quantities: Sequence[str], statistic: str, *, predicted: bool = True
) -> Domain:
    """Whole decades around everything that is drawn, so that two results share an axis."""
    values = [v for layers in results for _, _, _, v in values_of(layers, quantities, statistic) if drawable(v)]
    if predicted:
        values += [v for layers in results for _, _, v in _predicted(layers, quantities, statistic) if drawable(v)]
    low, high = (min(values), max(values)) if values else (0.1, 1.0)
    bottom, top = math.floor(math.log10(low) - 0.05), math.ceil(math.log10(high) + 0.05)
    return 10.0 ** max(bottom, -300), 10.0 ** max(top, bottom + 1)


def depth_chart(
    layers: Sequence[Layer],
    quantities: Sequence[str],
    statistic: str,
    theme: Theme,
    domain: Domain,
    *,
    height: int = 420,
    narrow: bool = False,
) -> Layered:
    """One line for each quantity over the layers. Zeros and values that are not finite stand at the edge, by name."""
    rows = pd.DataFrame(values_of(layers, quantities, statistic), columns=["position", "layer", "series", "value"])
    rows["shown"] = [number_text(v) for v in rows["value"]]
    rows["at"] = [v if drawable(v) else domain[0] if v == 0 else domain[1] for v in rows["value"]]
    predicted = pd.DataFrame(_predicted(layers, quantities, statistic), columns=["position", "layer", "at"])
    predicted = predicted[(predicted["at"] >= domain[0]) & (predicted["at"] <= domain[1])].assign(series=PREDICTED)
    predicted["shown"] = [number_text(v) for v in predicted["at"]]
    finite = rows[[drawable(v) for v in rows["value"]]]
    edge = rows[[not drawable(v) for v in rows["value"]]]
    x, y = layer_axis(layers), log_y(domain, statistic, quantities)
    names = [*quantities, *([PREDICTED] if len(predicted) else [])]
    color = color_of(names, theme, 1 if narrow else 3)
    tooltip = [
        alt.Tooltip("layer:N"),
        alt.Tooltip("series:N", title="quantity"),
        alt.Tooltip("shown:N", title=statistic),
    ]
    inner = {i for i, layer in enumerate(layers, 1) if layer.inner}  # what stands outside is no part of a line
    lines = alt.Chart(finite[[i in inner for i in finite["position"]]]).mark_line(strokeWidth=2.5).encode(x, y, color)
    points = alt.Chart(finite).mark_point(size=45, filled=True, opacity=1).encode(x, y, color, tooltip=tooltip)
    dashed = (
        alt.Chart(predicted)
        .mark_line(strokeWidth=6, opacity=0.5)
        .encode(x, y, color, tooltip=tooltip, strokeDash=alt.value([11, 6]))
    )
    marks = (
        alt.Chart(edge)
        .mark_text(fontWeight="bold", fontSize=13, baseline="middle")
        .encode(x, y, color, alt.Text("shown:N"), tooltip=tooltip)
    )
    drawn = alt.layer(dashed, lines, points, marks)
    return with_limits(drawn, domain, theme).properties(
        height=height, description=_description(layers, quantities, statistic)
    )


def shares_chart(layers: Sequence[Layer], theme: Theme, *, height: int = 420) -> alt.Chart | None:
    """Shares of values over depth; None where none was measured."""
    rows = [
        {"position": i, "layer": layer.name, "series": name, "share": getattr(layer, key)}
        for i, layer in enumerate(layers, 1)
        for name, key in SHARES.items()
        if getattr(layer, key) is not None
    ]
    if not rows:
        return None
    names = [name for name in SHARES if any(row["series"] == name for row in rows)]
    y = alt.Y(
        "share:Q", axis=alt.Axis(title="share of values, or of units", format="%"), scale=alt.Scale(domain=[0, 1])
    )
    tooltip = [alt.Tooltip("layer:N"), alt.Tooltip("series:N", title="share"), alt.Tooltip("share:Q", format=".4%")]
    chart = alt.Chart(pd.DataFrame(rows)).mark_line(point=alt.OverlayMarkDef(size=45), strokeWidth=2.5)
    described = {"height": height, "description": f"Shares over {len(layers)} layers: {', '.join(names)}."}
    return chart.encode(layer_axis(layers), y, color_of(names, theme, 2), tooltip=tooltip).properties(**described)


def values_of(layers: Sequence[Layer], quantities: Sequence[str], statistic: str) -> list[tuple[int, str, str, float]]:
    return [
        (i, layer.name, quantity, abs(value))
        for quantity in quantities
        for i, layer in enumerate(layers, 1)
        if (value := getattr(layer, field(quantity, statistic))) is not None
    ]


def _predicted(layers: Sequence[Layer], quantities: Sequence[str], statistic: str) -> list[tuple[int, str, float]]:
    """The theory's line, moved to meet the measured one at the last layer where both are known: it predicts ratios."""
    shown = next((q for q in ("random cotangent", "activation gradient") if q in quantities), None)
    if shown is None or statistic not in ("norm", "RMS"):
        return []
    found = [(i, layer) for i, layer in enumerate(layers, 1) if layer.predicted_grad_norm]
    if not found:
        return []
    last = found[-1][1]
    measured, anchor = getattr(last, field(shown, statistic)), last.predicted_grad_norm
    if not measured or not anchor or not math.isfinite(measured):
        return []
    return [(i, layer.name, layer.predicted_grad_norm * measured / anchor) for i, layer in found]


def _description(layers: Sequence[Layer], quantities: Sequence[str], statistic: str) -> str:
    """The picture in one sentence."""
    ends = []
    for quantity in quantities:
        found = [(name, value) for _, name, _, value in values_of(layers, [quantity], statistic)]
        if found:
            (first, a), (last, b) = found[0], found[-1]
            ends.append(f"{quantity} from {number_text(a)} in {first} to {number_text(b)} in {last}")
    return f"{statistic} over {len(layers)} layers on a log axis: {'; '.join(ends)}."


def drawable(value: float) -> bool:
    return 0 < value < math.inf


def layer_axis(layers: Sequence[Layer]) -> alt.X:
    """One place a layer, in order. Many layers of one name are labelled by their number."""
    names = [layer.name for layer in layers]
    numbered = len(names) > _MOST_NAMES
    word = next((layer.name for layer in layers if layer.inner), "layer").split(" ")[0]
    labels = [name.removeprefix(f"{word} ") if numbered else name for name in names]
    axis = alt.Axis(
        title=f"{word if numbered else 'layer'}, from input to output",
        values=list(range(1, len(names) + 1)),
        labelExpr=f"{json.dumps(labels)}[datum.value - 1]",
        labelAngle=-30 if not numbered and len(names) > 5 else 0,
        labelOverlap="greedy" if numbered else False,
        grid=False,
    )
    return alt.X("position:Q", axis=axis, scale=alt.Scale(domain=[0.5, len(names) + 0.5], nice=False))


def log_y(domain: Domain, statistic: str, quantities: Sequence[str]) -> alt.Y:
    what = quantities[0] if len(quantities) == 1 else "gradient or activation"
    word = "magnitude of the mean" if statistic == "mean" else "largest magnitude" if statistic == "max" else statistic
    axis = decades_axis(f"{word} of {what} (log)", domain, _TICKS)
    return alt.Y("at:Q", axis=axis, scale=alt.Scale(type="log", domain=list(domain), nice=False, clamp=True))


def decades_axis(title: str, domain: Domain, most: int) -> alt.Axis:
    """Powers of ten, at most so many."""
    low, high = (round(math.log10(bound)) for bound in domain)
    ticks = [10.0**power for power in range(low, high + 1, max(1, math.ceil((high - low) / most)))]
    return alt.Axis(title=title, format="~e", values=ticks)


def color_of(names: Sequence[str], theme: Theme, columns: int) -> alt.Color:
    scale = alt.Scale(
        domain=list(names), range=[ink(theme) if name == PREDICTED else MEMORY[theme][_HUES[name]] for name in names]
    )
    return alt.Color(
        "series:N",
        scale=scale,
        legend=alt.Legend(
            title=None,
            orient="top",
            labelLimit=320,
            columns=columns,
            symbolType="stroke",
            symbolStrokeWidth=4,
            symbolSize=250,
            symbolOpacity=1,
        ),
    )


def with_limits(drawn: Layered, domain: Domain, theme: Theme) -> Layered:
    """``drawn`` over the smallest numbers of the formats, where the axis reaches them; their names stand at the right edge."""
    limits = {value: f"{name} {value:.1e}" for name, value in _SMALLEST.items() if domain[0] < value < domain[1]}
    if not limits:
        return drawn
    told = {str(round(math.log2(value))): name.split(" smallest ") for value, name in limits.items()}
    axis = alt.Axis(
        title=None,
        orient="right",
        values=list(limits),
        labelExpr=f"{json.dumps(told)}[round(log(datum.value) / LN2)]",
        labelColor=ink(theme),
        labelLimit=200,
        grid=True,
        gridDash=[2, 3],
        gridColor=ink(theme),
        ticks=False,
        domain=False,
    )
    scale = alt.Scale(type="log", domain=list(domain), nice=False, clamp=True)
    rows = pd.DataFrame([{"at": value} for value in limits])
    rules = alt.Chart(rows).mark_rule(opacity=0).encode(alt.Y("at:Q", axis=axis, scale=scale))
    return alt.layer(rules, drawn).resolve_axis(y="independent")
