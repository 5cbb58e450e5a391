"""The views of the page: stages with the tables of causes, the power of the golden set, drift."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from components.frame import experiment as frame
from components.kit.charts import draw_chart, theme
from components.kit.headline import Metric, headline
from components.kit.tables import draw_table
from components.serving_skew.charts import stages as charts
from lab.records.serving import SkewResult

Page = frame.ExperimentPage[SkewResult]
Side = frame.Side[SkewResult]


def draw_view(page: Page, side: Side) -> None:
    """The one figure of the view that was measured."""
    result = side.result
    if result.power:
        st.markdown("**Share of names that change**; “values” where only values show it, ✕ where nothing does")
        draw_chart(
            charts.power_chart(result.power, result.rows, theme()), f"{side.key}-power", presenting=page.presenting
        )
        return
    if result.drift:
        st.markdown("**Live rows against the rows of training**")
        draw_chart(charts.drift_chart(result.drift, theme()), f"{side.key}-drift", presenting=False)
    if result.stages:
        headline(_numbers(result), side.key, presenting=page.presenting)
        draw_chart(
            charts.stage_chart(result, theme()), f"{side.key}-stages", presenting=page.presenting and not result.drift
        )
        if not page.presenting:
            _causes(result)


def _numbers(result: SkewResult) -> list[Metric]:
    first = next((stage for stage in result.stages if stage.name == result.first), None)
    gap = "0" if first is None else f"{first.gap:.1%}" if first.scale == 0.0 else f"{first.gap:.4g}"
    return [
        ("first stage that parts", result.first or "none", f"of {len(result.stages)} stages"),
        ("gap there", gap, "of its entries" if first and first.scale == 0.0 else "standard deviations"),
        ("names changed", f"{result.labels_changed:.1%}", f"of {result.rows} rows"),
        ("probability", f"{result.probability_gap:.3g}", "largest difference"),
    ]


def _causes(result: SkewResult) -> None:
    """What was compared before anything ran, and the columns one by one."""
    rows = {
        "weights and buffers that differ": ", ".join(result.weights_differ[:8]) or "none",
        "modules in another mode": ", ".join(result.modes_differ[:8]) or "none",
        "dtypes of the serving path": ", ".join(result.dtypes) or "unknown",
        "two calls of the serving path": f"differ from {result.random_from} on" if result.random_from else "are equal",
    }
    if result.columns:
        apart = [f"{c.name} ({c.gap:.3g})" for c in result.columns if c.gap]
        rows["columns of the features that differ"] = ", ".join(apart[:8]) or "none"
    st.markdown("**What tells them apart**")
    st.table(pd.DataFrame([{"compared": k, "found": v} for k, v in rows.items()]).set_index("compared"))


_STAGES = {
    "stage": "", "gap": "Largest difference over the standard deviation of the stage; for names the share that differs.",
    "standard deviation": "Of the training path's stage; 0 for names and whole numbers.", "agrees": "", "bit for bit": "",
    "called twice": "Gap between two calls of the serving path.",
}  # fmt: skip
_POWER = {"departure": "", "golden rows": "", "shown by value": "", "names changed": "", "first stage": ""}


def draw_details(side: Side) -> None:
    """The rows behind the figure."""
    result = side.result
    if result.power:
        rows: list[dict[str, Any]] = [
            dict(zip(_POWER, (p.skew, p.rows, "yes" if p.shown else "no", p.labels, p.first), strict=True))
            for p in result.power
        ]
        draw_table(rows, _POWER, f"{side.key}-power-rows", "")
    elif result.stages:
        rows = [
            dict(zip(_STAGES, (s.name, s.gap, s.scale, "yes" if s.agrees else "no", "yes" if s.equal else "no", s.repeated_gap), strict=True))
            for s in result.stages
        ]  # fmt: skip
        draw_table(rows, _STAGES, f"{side.key}-stage-rows", "")
