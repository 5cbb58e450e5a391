"""Two ribbons of operations, the gap over steps, draws by line, levels of sameness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, Theme
from lab.records.reproducing import Draw, Growth, LevelRow, ReproResult

Drawn: TypeAlias = alt.LayerChart | alt.FacetChart
EPSILON = 1.1920929e-07
"""Distance from 1 to the next float32."""
FLOOR = 1e-12
"""Where a gap of exactly zero is drawn on the logarithmic axis."""
_EQUAL, _DIFFERS, _ALONE = "equal bit for bit", "differs", "in this run only"
_ENTRIES = 400


def ribbon_chart(result: ReproResult, theme: Theme) -> Drawn:
    """The first run above, the second below; a stretch that is equal is one block, wider with the number of its operations."""
    table, middle, end = _blocks(result)
    hues = {_EQUAL: MODES[theme]["on"], _DIFFERS: GRAPH[theme]["fault"], _ALONE: MODES[theme]["train"]}
    kinds = [kind for kind in hues if any(row["kind"] == kind for row in table)]
    x = alt.X(
        "start:Q",
        title="operations in the order of both runs (equal stretches are shortened)",
        axis=alt.Axis(labels=False, ticks=False, grid=False),
        scale=alt.Scale(domain=[0, end], nice=False),
    )
    blocks = (
        alt.Chart(pd.DataFrame(table))
        .mark_rect(cornerRadius=2, stroke=GRAPH[theme]["frame"], strokeWidth=0.4)
        .encode(
            x, x2="stop:Q", y=alt.Y("run:N", sort=["run 1", "run 2"], title=None, axis=alt.Axis(labelFontSize=13, ticks=False, domain=False), scale=alt.Scale(paddingInner=0.25)),
            color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds, range=[hues[kind] for kind in kinds]), legend=alt.Legend(orient="top", labelLimit=200)),
            tooltip=[alt.Tooltip("op:N", title="operation"), alt.Tooltip("place:N"), alt.Tooltip("count:Q", title="operations", format=","), alt.Tooltip("kind:N", title=" "), alt.Tooltip("gap:N", title="largest difference")],
        )
    )  # fmt: skip
    layers: list[Any] = [blocks]
    if middle is not None and result.first is not None:
        left = middle > end / 2
        mark = alt.Chart(pd.DataFrame([{"start": middle, "word": f"first: {result.first.op}, {result.first.place}"}]))
        layers += [
            mark.mark_rule(color=GRAPH[theme]["ink"], strokeWidth=2).encode(x="start:Q"),
            mark.mark_text(align="right" if left else "left", dx=-7 if left else 7, dy=-2, baseline="bottom", fontSize=13, fontWeight="bold", color=GRAPH[theme]["ink"]).encode(x="start:Q", y=alt.value(0), text="word:N"),
        ]  # fmt: skip
    return alt.layer(*layers).properties(height=230, description="Operations of two runs, aligned.")


def _blocks(result: ReproResult) -> tuple[list[dict[str, Any]], float | None, float]:
    """(blocks of both ribbons, where the first difference is, the width of all)."""
    t = result.timeline
    table: list[dict[str, Any]] = []
    at, first = 0.0, None
    for index, count, place, op, side, equal, gap in list(
        zip(t.index, t.count, t.place, t.op, t.side, t.equal, t.gap, strict=True)
    )[:_ENTRIES]:
        width = 1.0 if count == 1 else 1.0 + 2.0 * math.log2(count)
        here = result.first is not None and index == result.first.index and not equal and first is None
        if here and (result.first is None or result.first.op == op):
            first = at
        kind = _EQUAL if equal else _DIFFERS if side == "both" else _ALONE
        for run, name in (("run 1", "A"), ("run 2", "B")):
            if side in ("both", name):
                table.append({
                    "run": run, "start": at, "stop": at + width, "op": f"{op} and {count - 1:,} more" if count > 1 else op, "place": place, "count": count,
                    "kind": kind, "gap": "0" if equal else f"{gap:.3g}" if side == "both" else "—",
                })  # fmt: skip
        at += width
    return table, first, max(at, 1.0)


def growth_chart(rows: Sequence[Growth], theme: Theme) -> Drawn:
    """Relative gap of all parameters after each step; the distance of neighbouring float32 numbers as a line."""
    table = [
        {"step": r.step, "at": max(r.gap, FLOOR), "gap": f"{r.gap:.4g}", "a": r.loss_a, "b": r.loss_b} for r in rows
    ]
    top = max([r.gap for r in rows] + [1e-6])
    ticks = [FLOOR, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0]
    base = alt.Chart(pd.DataFrame(table)).encode(
        x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(padding=14, nice=False)),
        y=alt.Y("at:Q", title="relative gap", scale=alt.Scale(type="log", domain=[FLOOR, top * 20]), axis=alt.Axis(values=ticks, labelExpr=f"datum.value <= {FLOOR} ? '0' : format(datum.value, '.0e')")),
        tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("gap:N"), alt.Tooltip("a:Q", title="loss of the first run", format=".8g"), alt.Tooltip("b:Q", title="loss of the second", format=".8g")],
    )  # fmt: skip
    limit = alt.Chart(pd.DataFrame([{"at": EPSILON, "word": "float32's epsilon"}]))
    muted = GRAPH[theme]["muted"]
    line = limit.mark_rule(strokeDash=[5, 4], color=muted).encode(y="at:Q")
    name = limit.mark_text(align="left", dx=4, dy=-8, fontSize=12, color=muted).encode(
        x=alt.value(0), y="at:Q", text="word:N"
    )
    curve = base.mark_line(strokeWidth=2.5, color=MODES[theme]["train"])
    return alt.layer(line, name, curve, base.mark_circle(size=90, opacity=1, color=MODES[theme]["train"])).properties(
        height=210, description="Gap of the parameters over steps."
    )


def tape_chart(draws: Sequence[Draw], theme: Theme) -> Drawn:
    """Draws from torch's generator in order, by line; hollow where only one of the runs draws."""
    shown = [d for d in draws if d.line][:200]
    table = [
        {"order": at, "line": f"line {d.line}", "op": d.op, "count": d.count, "kind": "both runs" if d.in_a and d.in_b else "one run only", "word": f"{d.count}×" if d.count > 1 else ""}
        for at, d in enumerate(shown, 1)
    ]  # fmt: skip
    lines = [f"line {n}" for n in sorted({d.line for d in shown})]
    base = alt.Chart(pd.DataFrame(table)).encode(
        x=alt.X("order:Q", title="draws, in order", axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(domain=[0.5, len(table) + 0.5], nice=False)),
        y=alt.Y("line:N", sort=lines, title=None, axis=alt.Axis(labelFontSize=13, grid=True)),
        tooltip=[alt.Tooltip("line:N"), alt.Tooltip("op:N", title="operation"), alt.Tooltip("count:Q", title="times")],
    )  # fmt: skip
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=["both runs", "one run only"], range=[MODES[theme]["eval"], MODES[theme]["train"]]),
        legend=alt.Legend(orient="top"),
    )
    dots = base.mark_square(size=150, opacity=1).encode(color=colour)
    words = base.mark_text(dy=-13, fontSize=11, color=GRAPH[theme]["ink"]).encode(text="word:N")
    layers = [dots, words] if len(table) <= 40 else [dots]
    return alt.layer(*layers).properties(height=36 * len(lines) + 100, description="Which lines draw random numbers.")


def level_chart(levels: Sequence[LevelRow], seeds: Sequence[float], theme: Theme) -> Drawn:
    """Losses of five seeds as marks, and how far the change moves the curve: a bar on the same axis."""
    curve = next(row for row in levels if row.name == "the same curve")
    table = [
        {"what": "over five seeds", "size": curve.yardstick, "told": f"{curve.yardstick:.3g}"},
        {"what": "by the change", "size": curve.measured, "told": f"{curve.measured:.3g}"},
    ]
    floor = 1e-9
    for row in table:
        row["at"] = max(float(row["size"]), floor)  # type: ignore[arg-type]
    base = alt.Chart(pd.DataFrame(table)).encode(
        y=alt.Y("what:N", sort=["over five seeds", "by the change"], title=None, axis=alt.Axis(labelFontSize=13)),
        x=alt.X("at:Q", title="largest difference of the losses of a step", scale=alt.Scale(type="log", domain=[floor, max(10.0, curve.yardstick * 10)]), axis=alt.Axis(format=".0e")),
        tooltip=[alt.Tooltip("what:N"), alt.Tooltip("told:N", title="difference")],
    )  # fmt: skip
    colour = alt.Color(
        "what:N",
        legend=None,
        scale=alt.Scale(domain=["over five seeds", "by the change"], range=[MODES[theme]["on"], MODES[theme]["train"]]),
    )
    bars = base.mark_bar(height=26, cornerRadiusEnd=3).encode(color=colour, x2=alt.datum(floor))
    words = base.mark_text(align="left", dx=6, fontSize=13, color=GRAPH[theme]["ink"]).encode(text="told:N")
    return alt.layer(bars, words).properties(
        height=150, description="What the change does to the curve against the spread over seeds."
    )
