"""A bar a tensor, and the studies of freezing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, Theme
from lab.records.fine_tuning import FrozenMidway, LowRankRun, Moved, Share

Drawn: TypeAlias = alt.LayerChart | alt.FacetChart
FLOOR = 1e-6
"""Where a tensor that did not move at all is drawn."""
MOST = 40
_KINDS: tuple[str, ...] = (
    "trainable and held by the optimizer",
    "trainable, held by nobody",
    "held, not trainable",
    "neither",
    "statistic: no gradient reaches it",
)


def moved_chart(rows: Sequence[Moved], theme: Theme) -> Drawn:
    """Relative movement of every tensor on a logarithmic axis; a tensor that did not move at all has a hollow mark at 0."""
    shown = list(rows[:MOST])
    table = [_row(row) for row in shown]
    frame = pd.DataFrame(table)
    order = [row.name for row in shown]
    hues = dict(
        zip(_KINDS, (MODES[theme]["on"], GRAPH[theme]["fault"], MODES[theme]["eval"], GRAPH[theme]["muted"], MODES[theme]["train"]), strict=True)
    )  # fmt: skip
    kinds = [kind for kind in _KINDS if any(row["kind"] == kind for row in table)]
    top = max([row["at"] for row in table] + [1e-2])
    ticks = [FLOOR, *(10.0**k for k in range(-5, math.ceil(math.log10(top)) + 1))]
    x = alt.X(
        "at:Q", title="movement, relative to the tensor's norm before", scale=alt.Scale(type="log", domain=[FLOOR, top * 6]),
        axis=alt.Axis(values=ticks, labelExpr=f"datum.value <= {FLOOR} ? '0' : format(datum.value, '.0e')"),
    )  # fmt: skip
    y = alt.Y(
        "name:N",
        sort=order,
        title=None,
        axis=alt.Axis(labelLimit=300, labelOverlap=False, labelFontSize=12, ticks=False),
    )
    colour = alt.Color(
        "kind:N", title=None, scale=alt.Scale(domain=kinds, range=[hues[kind] for kind in kinds]),
        legend=alt.Legend(orient="top", labelLimit=330, columns=2),
    )  # fmt: skip
    tips = [
        alt.Tooltip("name:N", title="tensor"), alt.Tooltip("shape:N"), alt.Tooltip("distance:N"), alt.Tooltip("relative:N", title="relative"),
        alt.Tooltip("kind:N", title=" "), alt.Tooltip("gradient:N", title="gradient at the last step"),
    ]  # fmt: skip
    base = alt.Chart(frame)
    bars = (
        base.transform_filter(f"datum.at > {FLOOR}")
        .mark_bar(height=13, cornerRadiusEnd=3)
        .encode(x, y, color=colour, x2=alt.datum(FLOOR), tooltip=tips)
    )
    still = (
        base.transform_filter(f"datum.at <= {FLOOR}")
        .mark_point(size=95, strokeWidth=2.5, filled=False, opacity=1)
        .encode(x, y, color=colour, tooltip=tips)
    )
    words = base.mark_text(align="left", dx=9, fontSize=12, color=GRAPH[theme]["ink"]).encode(x, y, text="word:N")
    return alt.layer(bars, still, words).properties(
        height=25 * len(shown) + 110, description="How far each tensor moved, by whether it is trainable and held."
    )


def _row(row: Moved) -> dict[str, Any]:
    finite = math.isfinite(row.relative)
    if row.kind == "statistic":
        kind = _KINDS[4]
    else:
        kind = (
            _KINDS[0]
            if row.trainable and row.held
            else _KINDS[1]
            if row.trainable
            else _KINDS[2]
            if row.held
            else _KINDS[3]
        )
    return {
        "name": row.name, "shape": str(list(row.shape)), "kind": kind, "gradient": row.gradient,
        "at": max(row.relative, FLOOR) if finite else 1.0, "distance": f"{row.distance:.6g}",
        "relative": f"{row.relative:.4g}" if finite else "from zero", "word": "" if row.distance else "did not move",
    }  # fmt: skip


def midway_chart(rows: Sequence[FrozenMidway], theme: Theme) -> Drawn:
    """How far weights moved in 20 steps after they were frozen."""
    frame = pd.DataFrame(
        [
            {
                "case": f"{r.optimizer}, decay {r.weight_decay:g}", "moved": r.moved, "word": f"{r.moved:.3g}" if r.moved else "exactly 0",
                "gradients": "removed (None)" if r.set_to_none else "filled with zeros",
            }
            for r in rows
        ]
    )  # fmt: skip
    order = list(dict.fromkeys(frame["case"]))
    base = alt.Chart(frame).encode(
        y=alt.Y("case:N", sort=order, title=None, axis=alt.Axis(labelLimit=240, labelFontSize=13)),
        yOffset=alt.YOffset("gradients:N", sort=["removed (None)", "filled with zeros"]),
        x=alt.X("moved:Q", title="distance of the backbone's weights from where they were frozen", scale=alt.Scale(domain=[0, 1.2 * (max(r.moved for r in rows) or 1)])),
        tooltip=[alt.Tooltip("case:N"), alt.Tooltip("gradients:N"), alt.Tooltip("moved:Q", format=".6g")],
    )  # fmt: skip
    colour = alt.Color(
        "gradients:N", title="zero_grad", sort=None, legend=alt.Legend(orient="top", labelLimit=240),
        scale=alt.Scale(domain=["removed (None)", "filled with zeros"], range=[MODES[theme]["on"], MODES[theme]["train"]]),
    )  # fmt: skip
    words = base.mark_text(align="left", dx=6, fontSize=12, color=GRAPH[theme]["ink"]).encode(text="word:N")
    return alt.layer(base.mark_bar(cornerRadiusEnd=3).encode(color=colour), words).properties(
        height=58 * len(order) + 90, description="Movement of frozen weights."
    )


def share_chart(rows: Sequence[Share], theme: Theme) -> Drawn:
    """Accuracy by what was frozen: a dot the mean of three seeds, a line their range; rows by task and data."""
    frame = pd.DataFrame(
        [
            {
                "case": f"{r.task} task, {r.data}", "frozen": r.frozen, "accuracy": r.accuracy, "low": r.low, "high": r.high,
                "forgotten": r.forgotten, "share": r.share,
            }
            for r in rows
        ]
    )  # fmt: skip
    names = ["nothing", "first block", "both blocks", "gradually unfrozen"]
    colour = alt.Color(
        "frozen:N", title="frozen", sort=names, legend=alt.Legend(orient="top", labelLimit=200),
        scale=alt.Scale(domain=names, range=[MODES[theme]["on"], GRAPH[theme]["muted"], MODES[theme]["train"], MODES[theme]["eval"]]),
    )  # fmt: skip
    low = max(0.0, min(r.low for r in rows) - 0.05)
    base = alt.Chart(frame).encode(
        y=alt.Y("case:N", sort=list(dict.fromkeys(frame["case"])), title=None, axis=alt.Axis(labelFontSize=13, labelLimit=200)),
        yOffset=alt.YOffset("frozen:N", sort=names),
        tooltip=[
            alt.Tooltip("case:N"), alt.Tooltip("frozen:N"), alt.Tooltip("share:Q", title="of all weights", format=".0%"),
            alt.Tooltip("accuracy:Q", format=".4f"), alt.Tooltip("low:Q", format=".4f"), alt.Tooltip("high:Q", format=".4f"),
            alt.Tooltip("forgotten:Q", title="lost on the first task", format=".3f"),
        ],
    )  # fmt: skip
    scale = alt.Scale(domain=[low, 1.0])
    lines = base.mark_rule(strokeWidth=3).encode(
        x=alt.X("low:Q", scale=scale, title="accuracy on the second task (three seeds)"), x2="high:Q", color=colour
    )
    dots = base.mark_circle(size=120, opacity=1).encode(x=alt.X("accuracy:Q", scale=scale), color=colour)
    return alt.layer(lines, dots).properties(
        height=84 * len(set(frame["case"])) + 90, description="Accuracy by how much was frozen."
    )


def ranks_chart(rows: Sequence[LowRankRun], chosen: int, theme: Theme) -> Drawn:
    """Trained numbers by rank, against all numbers of the model."""
    frame = pd.DataFrame(
        [
            {
                "rank": str(r.rank),
                "trained": r.trainable,
                "word": f"{r.trainable:,}",
                "accuracy": r.accuracy,
                "chosen": "chosen" if r.rank == chosen else "others",
                "update": r.update_rank,
            }
            for r in rows
        ]
    )
    order = [str(r.rank) for r in rows]
    base = alt.Chart(frame).encode(
        x=alt.X("rank:N", sort=order, title="rank", axis=alt.Axis(labelAngle=0, labelFontSize=13)),
        y=alt.Y("trained:Q", title="numbers that are trained"),
        tooltip=[alt.Tooltip("rank:N"), alt.Tooltip("update:Q", title="rank of the update"), alt.Tooltip("trained:Q", format=","), alt.Tooltip("accuracy:Q", format=".4f")],
    )  # fmt: skip
    colour = alt.Color(
        "chosen:N",
        legend=None,
        scale=alt.Scale(domain=["chosen", "others"], range=[MODES[theme]["train"], MODES[theme]["on"]]),
    )
    whole = alt.Chart(pd.DataFrame([{"trained": 1571, "word": "the whole model: 1,571"}]))
    line = whole.mark_rule(strokeDash=[5, 4], color=GRAPH[theme]["muted"]).encode(y="trained:Q")
    name = whole.mark_text(align="left", dx=4, dy=-9, fontSize=12, color=GRAPH[theme]["muted"]).encode(
        x=alt.value(0), y="trained:Q", text="word:N"
    )
    bars = base.mark_bar(cornerRadiusEnd=3, size=56).encode(color=colour)
    words = base.mark_text(dy=-9, fontSize=12, color=GRAPH[theme]["ink"]).encode(text="word:N")
    return alt.layer(bars, words, line, name).properties(height=340, description="Trained numbers by rank.")
