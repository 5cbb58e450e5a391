"""Gradient exponents by layer with the window of a format as a frame that a slider moves; a scaler's steps; lost updates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeAlias

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, Theme
from lab.records.precision import Drift, Lost, MatmulError, PrecisionResult, ScalerStep

Drawn: TypeAlias = alt.LayerChart | alt.FacetChart
_ROW_PX = 26


def window_chart(result: PrecisionResult, scale: float, theme: Theme) -> Drawn:
    """A row a layer, a column an exponent, darker where more gradients lie; the frame is what the format holds after scaling.

    The slider under the figure moves it: a scale of 2^k slides the window by k to the left on the axis of unscaled gradients.
    """
    shown = next(f for f in result.formats if f.name == result.format)
    low, high = math.log2(shown.smallest), math.log2(shown.largest)
    table = _rows(result)
    order = list(dict.fromkeys(row["layer"] for row in table))
    left = min(min(row["exponent"] for row in table) - 2, math.floor(low) - 2)
    left = max(left, -70)
    axis = alt.Axis(tickMinStep=1, labelExpr="'2^' + datum.value", values=list(range(left - left % 5, 26, 5)))
    x = alt.X(
        "exponent:Q",
        title="size of a gradient (power of two, unscaled)",
        scale=alt.Scale(domain=[left, 18], nice=False),
        axis=axis,
    )
    y = alt.Y(
        "layer:N",
        sort=order,
        title=None,
        axis=alt.Axis(labelFontSize=12, ticks=False, domain=False, labelOverlap=False),
    )
    base = alt.Chart(pd.DataFrame(table))
    cells = base.mark_rect(cornerRadius=2).encode(
        x, alt.X2("end:Q"), y,
        color=alt.Color("share:Q", title="share of the layer", scale=alt.Scale(range=[MODES[theme]["off"], MODES[theme]["eval"]]), legend=alt.Legend(format=".0%", orient="right")),
        tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("told:N", title="size"), alt.Tooltip("count:Q", format=","), alt.Tooltip("share:Q", format=".2%")],
    )  # fmt: skip
    start = round(math.log2(scale))
    slide = alt.param(
        name="log2_scale", value=start, bind=alt.binding_range(min=0, max=30, step=1, name="scale: 2 to the power of ")
    )
    frame = alt.Chart(
        pd.DataFrame([{"low": low, "high": high, "first": order[0], "last": order[-1]}])
    ).transform_calculate(a=f"max(datum.low - log2_scale, {left})", b="min(datum.high - log2_scale, 18)")
    held = frame.mark_rect(
        fill=MODES[theme]["train"], fillOpacity=0.1, stroke=MODES[theme]["train"], strokeWidth=2.5
    ).encode(x=alt.X("a:Q"), x2="b:Q", y=alt.value(0), y2=alt.value("height"))
    told = _told(result, theme)
    return (
        alt.layer(cells, held, told)
        .add_params(slide)
        .properties(
            height=_ROW_PX * len(order) + 110, description="Gradient exponents by layer and the window of the format."
        )
    )


def _told(result: PrecisionResult, theme: Theme) -> alt.Chart:
    """What the window leaves out at the scale of the slider."""
    rows = [
        {
            "power": round(math.log2(r.scale)),
            "words": f"{result.format} at 2^{round(math.log2(r.scale))}: {r.zero:.1%} become 0\n{r.subnormal:.1%} lose digits, {r.overflow:.1%} overflow"
            + ("" if r.measured_zero is None or r.format != result.dtype else f"\na real backward pass: {r.measured_zero:.1%} are 0"),
        }
        for r in result.shares
        if r.format == result.format and math.log2(r.scale) == round(math.log2(r.scale))
    ]  # fmt: skip
    return (
        alt.Chart(pd.DataFrame(rows))
        .transform_filter("datum.power == log2_scale")
        .mark_text(
            align="left",
            baseline="bottom",
            dx=2,
            dy=-44,
            lineBreak="\n",
            fontSize=13,
            fontWeight="bold",
            color=GRAPH[theme]["ink"],
        )
        .encode(x=alt.value(0), y=alt.value(0), text="words:N")
    )


def _rows(result: PrecisionResult) -> list[dict[str, Any]]:
    whole: dict[str, int] = defaultdict(int)
    columns = list(zip(result.histogram.exponent, result.histogram.count, result.histogram.layer, strict=True))
    for _, count, layer in columns:
        whole[layer] += count
    return [
        {
            "layer": layer, "exponent": exponent, "end": exponent + 1, "count": count, "share": count / whole[layer],
            "told": f"2^{exponent} to 2^{exponent + 1}",
        }
        for exponent, count, layer in columns
    ]  # fmt: skip


def scaler_charts(steps: Sequence[ScalerStep], theme: Theme) -> tuple[Drawn, Drawn]:
    """The scale over steps with the skips as marks; the loss below."""
    table = [
        {
            "step": s.step, "scale": max(s.scale, 2.0**-30), "loss": s.loss if math.isfinite(s.loss) else None, "told": f"{s.scale:g}",
            "kind": f"skipped: {'NaN' if s.cause == 'nan' else 'overflow'}" if s.skipped else "step taken", "first": s.first or "—",
        }
        for s in steps
    ]  # fmt: skip
    kinds = [
        kind
        for kind in ("step taken", "skipped: overflow", "skipped: NaN")
        if any(row["kind"] == kind for row in table)
    ]
    hues = {
        "step taken": MODES[theme]["on"],
        "skipped: overflow": MODES[theme]["train"],
        "skipped: NaN": GRAPH[theme]["fault"],
    }
    base = alt.Chart(pd.DataFrame(table))
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(nice=False, padding=8))
    tips = [
        alt.Tooltip("step:Q"), alt.Tooltip("told:N", title="scale"), alt.Tooltip("loss:Q", format=".6g"), alt.Tooltip("kind:N", title=" "),
        alt.Tooltip("first:N", title="first operation that is not finite"),
    ]  # fmt: skip
    powers = [round(math.log2(row["scale"])) for row in table]
    ticks = [2.0**k for k in range(min(powers) - 1, max(powers) + 2, max(1, (max(powers) - min(powers)) // 6))]
    y = alt.Y(
        "scale:Q",
        title="scale",
        scale=alt.Scale(type="log", base=2, domain=[ticks[0], 2.0 ** (max(powers) + 1)]),
        axis=alt.Axis(minExtent=52, labelExpr="'2^' + round(log(datum.value) / log(2))", values=ticks),
    )
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=kinds, range=[hues[kind] for kind in kinds]),
        legend=alt.Legend(orient="top", labelLimit=200),
    )
    line = base.mark_line(interpolate="step-after", strokeWidth=2, color=GRAPH[theme]["muted"]).encode(x, y)
    dots = base.mark_circle(size=75, opacity=1).encode(x, y, color=colour, tooltip=tips)
    upper = alt.layer(line, dots).properties(height=240, description="Scale of the gradient scaler over steps.")
    loss = alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False), axis=alt.Axis(minExtent=52))
    lower = alt.layer(
        base.mark_line(strokeWidth=2, color=MODES[theme]["eval"]).encode(x, loss),
        base.mark_circle(size=40, opacity=1, color=MODES[theme]["eval"]).encode(x, loss, tooltip=tips),
    ).properties(height=170, description="Loss over steps.")
    return upper, lower


def updates_chart(rows: Sequence[Lost], theme: Theme) -> Drawn:
    """Share of weights that one step of Adam moved, by learning rate: measured as dots, predicted as hollow squares."""
    table = [
        {"dtype": r.dtype, "lr": f"{r.lr:.0e}".replace("e-0", "e-"), "share": value, "kind": kind}
        for r in rows
        for kind, value in (("measured", r.moved), ("predicted by the distance to the next number", r.predicted))
    ]
    order = list(dict.fromkeys(row["lr"] for row in table))
    hues = [MODES[theme]["on"], MODES[theme]["eval"], MODES[theme]["train"]]
    colour = alt.Color(
        "dtype:N",
        title=None,
        sort=None,
        scale=alt.Scale(domain=["fp32", "bf16", "fp16"], range=hues),
        legend=alt.Legend(orient="top"),
    )
    base = alt.Chart(pd.DataFrame(table)).encode(
        x=alt.X("lr:N", sort=order, title="learning rate", axis=alt.Axis(labelAngle=0, labelFontSize=13)), xOffset=alt.XOffset("dtype:N", sort=["fp32", "bf16", "fp16"]),
        y=alt.Y("share:Q", title="share of weights that moved", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1.05])),
        tooltip=[alt.Tooltip("dtype:N"), alt.Tooltip("lr:N", title="learning rate"), alt.Tooltip("kind:N", title=" "), alt.Tooltip("share:Q", format=".4%")],
    )  # fmt: skip
    bars = base.transform_filter("datum.kind == 'measured'").mark_bar(cornerRadiusEnd=2, size=22).encode(color=colour)
    marks = base.transform_filter("datum.kind != 'measured'").mark_tick(thickness=3, size=30, color=GRAPH[theme]["ink"])
    return alt.layer(bars, marks).properties(
        height=360, description="Share of weights that moved by learning rate and dtype."
    )


def drift_rows(drifts: Sequence[Drift]) -> list[dict[str, str]]:
    """A row a sum or average."""
    return [{"kept": d.what, "in": d.dtype, "ended at": f"{d.value:.6g}", "exactly": f"{d.exact:.6g}"} for d in drifts]


def matmul_chart(rows: Sequence[MatmulError], theme: Theme) -> Drawn:
    """Error of a product by the length of its sums, on logarithmic axes; dashed where the sum is kept in the dtype."""
    table = [
        {"dtype": r.dtype, "k": r.k, "error": r.error, "kind": r.accumulate, "line": f"{r.dtype} {r.accumulate}"}
        for r in rows
    ]
    base = alt.Chart(pd.DataFrame(table)).encode(
        x=alt.X("k:Q", title="length of the sums (K)", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=sorted({r.k for r in rows}), format="d")),
        y=alt.Y("error:Q", title="relative error against float64", scale=alt.Scale(type="log"), axis=alt.Axis(format=".0e")),
        color=alt.Color("dtype:N", title=None, sort=None, scale=alt.Scale(domain=["fp32", "bf16", "fp16"], range=[MODES[theme]["on"], MODES[theme]["eval"], MODES[theme]["train"]]), legend=alt.Legend(orient="top")),
        tooltip=[alt.Tooltip("dtype:N"), alt.Tooltip("kind:N", title="added"), alt.Tooltip("k:Q", title="K"), alt.Tooltip("error:Q", format=".4g")],
    )  # fmt: skip
    dash = alt.StrokeDash(
        "kind:N",
        title="added",
        sort=None,
        scale=alt.Scale(domain=["by torch", "one after another"], range=[[1, 0], [5, 4]]),
        legend=alt.Legend(orient="top", labelLimit=200),
    )
    lines = base.mark_line(strokeWidth=2.5).encode(strokeDash=dash, detail="line:N")
    return alt.layer(lines, base.mark_circle(size=80, opacity=1)).properties(
        height=380, description="Error of matrix products."
    )
