"""The gap of two paths at each stage, what a golden set can show, and how far live rows have moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, Theme
from lab.records.serving import Drift, Power, SkewResult, StageGap

Drawn: TypeAlias = alt.LayerChart | alt.FacetChart
FLOOR = 1e-9
"""Where a gap of exactly zero is drawn on the logarithmic axis."""
_AGREES, _FIRST, _FOLLOWS, _HEALS = "agrees", "parts here first", "follows", "within the tolerance again"
_CEILING = 1e6


def stage_chart(result: SkewResult, theme: Theme) -> Drawn:
    """Stages from left to right, the gap on a logarithmic axis, the tolerance as a line, the first that parts ringed."""
    rows = [_row(stage, result) for stage in result.stages]
    frame, order = pd.DataFrame(rows), [stage.name for stage in result.stages]
    ink, fault = GRAPH[theme]["ink"], GRAPH[theme]["fault"]
    x = alt.X(
        "stage:N", sort=order, title=None,
        axis=alt.Axis(labelAngle=-32, labelLimit=170, labelOverlap=False, labelFontSize=12, ticks=False),
    )  # fmt: skip
    top = max([row["at"] for row in rows] + [1.0])
    ticks = [FLOOR, *(10.0**k for k in range(-7, math.ceil(math.log10(top)) + 1, 2))]
    y = alt.Y(
        "at:Q", title="gap (standard deviations of the stage)", scale=alt.Scale(type="log", domain=[FLOOR, top * 10]),
        axis=alt.Axis(values=ticks, labelExpr=f"datum.value <= {FLOOR} ? '0' : format(datum.value, '.0e')"),
    )  # fmt: skip
    hues = {_AGREES: MODES[theme]["on"], _FIRST: fault, _FOLLOWS: MODES[theme]["train"], _HEALS: MODES[theme]["eval"]}
    kinds = [kind for kind in hues if any(row["kind"] == kind for row in rows)]
    colour = alt.Color(
        "kind:N", title=None, scale=alt.Scale(domain=kinds, range=[hues[kind] for kind in kinds]),
        legend=alt.Legend(orient="top", labelLimit=280),
    )  # fmt: skip
    tips = [
        alt.Tooltip("stage:N"), alt.Tooltip("gap:N"), alt.Tooltip("equal:N", title="bit for bit"),
        alt.Tooltip("repeated:N", title="serving path, called twice"),
    ]  # fmt: skip
    base = alt.Chart(frame)
    stems = base.mark_rule(strokeWidth=3, opacity=0.55).encode(x, y, color=colour, y2=alt.datum(FLOOR))
    points = base.mark_circle(size=190, opacity=1).encode(x, y, color=colour, tooltip=tips)
    words = base.mark_text(dy=-16, fontSize=12, color=ink).encode(x, y, text="word:N")
    limit = alt.Chart(pd.DataFrame([{"at": max(result.tolerance, FLOOR), "word": "tolerance"}]))
    line = limit.mark_rule(strokeDash=[5, 4], color=GRAPH[theme]["muted"]).encode(y="at:Q")
    name = limit.mark_text(align="left", dx=4, dy=-8, fontSize=12, color=GRAPH[theme]["muted"])
    name = name.encode(x=alt.value(0), y="at:Q", text="word:N")
    return alt.layer(line, name, stems, points, words).properties(
        height=420, description="Gap between the two paths at every stage."
    )


def _row(stage: StageGap, result: SkewResult) -> dict[str, Any]:
    gap = min(stage.gap, _CEILING) if math.isfinite(stage.gap) else _CEILING
    past = result.first and [s.name for s in result.stages].index(stage.name) > [s.name for s in result.stages].index(
        result.first
    )
    kind = (
        _FIRST
        if stage.name == result.first
        else _FOLLOWS
        if not stage.agrees
        else _HEALS
        if past and stage.gap
        else _AGREES
    )
    told = (
        f"{stage.gap:.1%} differ" if stage.scale == 0.0 and stage.gap else "0" if not stage.gap else f"{stage.gap:.3g}"
    )
    return {
        "stage": stage.name, "at": max(gap, FLOOR), "kind": kind, "word": told if stage.gap else "", "gap": told,
        "equal": "yes" if stage.equal else "no", "repeated": "equal" if not stage.repeated_gap else f"{stage.repeated_gap:.3g} apart",
    }  # fmt: skip


def power_chart(power: Sequence[Power], chosen: int, theme: Theme) -> Drawn:
    """A row a departure, a column a number of rows: the share of names that change; a cross where not even values show it."""
    names = [name for name in dict.fromkeys(p.skew for p in power) if name not in ("none", "batches of one")]
    rows = [
        {
            "skew": p.skew, "rows": str(p.rows), "share": p.labels, "word": "✕" if not p.shown else f"{p.labels:.0%}" if p.labels >= 0.005 else "values" if not p.labels else f"{p.labels:.1%}",
            "shown": "by value" if p.shown else "not at all", "first": p.first or "nowhere", "dark": p.labels > 0.35,
        }
        for p in power if p.skew in names
    ]  # fmt: skip
    counts = [str(c) for c in sorted({p.rows for p in power})]
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=alt.X("rows:N", sort=counts, title="golden rows", axis=alt.Axis(labelAngle=0, orient="top", labelFontSize=12, ticks=False, domain=False)),
        y=alt.Y("skew:N", sort=names, title=None, axis=alt.Axis(labelLimit=260, labelOverlap=False, labelFontSize=12, ticks=False, domain=False)),
        tooltip=[
            alt.Tooltip("skew:N", title="departure"), alt.Tooltip("rows:N", title="golden rows"), alt.Tooltip("shown:N", title="shows"),
            alt.Tooltip("first:N", title="first stage"), alt.Tooltip("share:Q", title="names changed", format=".2%"),
        ],
    )  # fmt: skip
    cells = base.mark_rect(cornerRadius=3, stroke=GRAPH[theme]["frame"]).encode(
        color=alt.Color(
            "share:Q", title="names changed", scale=alt.Scale(domain=[0, 1], range=[MODES[theme]["off"], MODES[theme]["eval"]]),
            legend=alt.Legend(format=".0%", orient="bottom", gradientLength=220),
        )
    )  # fmt: skip
    ink = alt.condition("datum.dark", alt.value("#ffffff"), alt.value(GRAPH[theme]["ink"]))
    words = base.mark_text(fontSize=12).encode(text="word:N", color=ink)
    frame = base.transform_filter(f"datum.rows == '{chosen}'").mark_rect(
        cornerRadius=3, filled=False, stroke=MODES[theme]["train"], strokeWidth=2
    )
    return alt.layer(cells, words, frame).properties(
        height=25 * len(names) + 120, description="What golden rows can show."
    )


def drift_chart(drift: Sequence[Drift], theme: Theme) -> Drawn:
    """A bar a column: how far the mean of the live rows is from that of training."""
    frame = pd.DataFrame(
        [
            {
                "column": d.column,
                "shift": d.shift_std,
                "word": f"{d.shift_std:+.2f}",
                "moved": "moved" if abs(d.shift_std) >= 1 else "as in training",
            }
            for d in drift
        ]
    )
    order = [d.column for d in drift]
    widest = max([abs(d.shift_std) for d in drift] + [1.5]) * 1.25
    base = alt.Chart(frame).encode(
        x=alt.X("shift:Q", title="mean of the live rows, less that of training (standard deviations of training)", scale=alt.Scale(domain=[-widest, widest])),
        y=alt.Y("column:N", sort=order, title=None, axis=alt.Axis(labelFontSize=13)),
        tooltip=[alt.Tooltip("column:N"), alt.Tooltip("shift:Q", format="+.5f", title="shift")],
    )  # fmt: skip
    colour = alt.Color(
        "moved:N", title=None, scale=alt.Scale(domain=["as in training", "moved"], range=[MODES[theme]["on"], MODES[theme]["train"]]),
        legend=alt.Legend(orient="top"),
    )  # fmt: skip
    bars = base.mark_bar(height=20, cornerRadiusEnd=3).encode(color=colour)
    right = (
        base.transform_filter("datum.shift >= 0")
        .mark_text(align="left", dx=6, fontSize=13, color=GRAPH[theme]["ink"])
        .encode(text="word:N")
    )
    left = (
        base.transform_filter("datum.shift < 0")
        .mark_text(align="right", dx=-6, fontSize=13, color=GRAPH[theme]["ink"])
        .encode(text="word:N")
    )
    return alt.layer(bars, right, left).properties(
        height=44 * len(order) + 90, description="Drift of the live rows by column."
    )
