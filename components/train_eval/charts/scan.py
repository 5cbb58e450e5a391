"""A model's modules by what they change under eval(), and what a forgotten eval() costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, Theme
from components.train_eval.charts.lamps import Drawn
from lab.records.modes_models import CostRow, ModelScan

ROW_PX = 30
MOST = 40
_IN_EVAL = ("eval", "eval_after_sorted")
_BY_BATCH = ("train", "sorted_in_train")


def gap_chart(modes: ModelScan, theme: Theme) -> Drawn:
    """One bar a module: relative output gap that it causes alone; the last bars are all together and what ignores eval()."""
    rows = [
        {"name": f"{m.path} ({m.type})", "gap": m.gap, "kind": "this module alone in train mode"}
        for m in sorted(modes.modules, key=lambda m: -m.gap)[:MOST]
    ]
    rows.append({"name": "all together", "gap": modes.gap_together, "kind": "all in train mode"})
    if modes.eval_spread > 0:
        rows.append({"name": "two calls after eval()", "gap": modes.eval_spread, "kind": "ignores eval()"})
    data = pd.DataFrame(rows)
    scale = alt.Scale(
        domain=["this module alone in train mode", "all in train mode", "ignores eval()"],
        range=[MODES[theme]["train"], MODES[theme]["eval"], GRAPH[theme]["fault"]],
    )
    base = alt.Chart(data).encode(
        x=alt.X("gap:Q", title="rms change of the output ÷ rms of the eval output", axis=alt.Axis(format=".0%")),
        y=alt.Y("name:N", sort=[row["name"] for row in rows], title=None, axis=alt.Axis(labelLimit=280, labelOverlap=False)),
        tooltip=[alt.Tooltip("name", title="module"), alt.Tooltip("gap", title="gap", format=".5%"), alt.Tooltip("kind", title=" ")],
    )  # fmt: skip
    bars = base.mark_bar(cornerRadiusEnd=3).encode(
        color=alt.Color(
            "kind:N", scale=scale, sort=None, legend=alt.Legend(title=None, orient="bottom", labelLimit=260)
        )
    )
    words = base.mark_text(align="left", dx=5, fontSize=12, color=GRAPH[theme]["ink"]).encode(
        text=alt.Text("gap:Q", format=".1%")
    )
    return alt.layer(bars, words).properties(
        height=ROW_PX * len(rows) + 110, description="Output gap that each module causes alone and all cause together."
    )


def cost_chart(rows: Sequence[CostRow], theme: Theme) -> Drawn:
    """Accuracy of the same trained network on the same test set, by how it was evaluated."""
    named = [
        {**asdict(row), "name": _named(row), "kind": "eval mode" if row.kind in _IN_EVAL else "train mode"}
        for row in rows
    ]
    data = pd.DataFrame(named)
    scale = alt.Scale(domain=["eval mode", "train mode"], range=[MODES[theme]["eval"], MODES[theme]["train"]])
    base = alt.Chart(data).encode(
        x=alt.X("accuracy:Q", title="accuracy on the test set", scale=alt.Scale(domain=[0, 1.15]), axis=alt.Axis(format=".0%", values=[0, 0.2, 0.4, 0.6, 0.8, 1])),
        y=alt.Y("name:N", sort=[row["name"] for row in named], title=None, axis=alt.Axis(labelLimit=280, labelOverlap=False)),
        tooltip=[
            alt.Tooltip("name", title="evaluated in"), alt.Tooltip("batch", title="batch size"),
            alt.Tooltip("accuracy", format=".4%"), alt.Tooltip("loss", title="cross-entropy", format=".5g"),
        ],
    )  # fmt: skip
    bars = base.mark_bar(cornerRadiusEnd=3).encode(
        color=alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="bottom"))
    )
    words = base.mark_text(align="left", dx=5, fontSize=12, color=GRAPH[theme]["ink"]).encode(
        text=alt.Text("accuracy:Q", format=".1%")
    )
    return alt.layer(bars, words).properties(
        height=ROW_PX * len(named) + 110, description="Accuracy and loss of one trained network by mode of evaluation."
    )


def _named(row: CostRow) -> str:
    """The batch matters where BatchNorm reads it."""
    return f"{row.setting.removeprefix('train mode, ')}, batch {row.batch}" if row.kind in _BY_BATCH else row.setting
