"""The figures of the page on train and eval mode: headline numbers, charts and tables of each study, from the wire form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from components.kit.palette import Theme
from components.train_eval.charts import batchnorm, dropout, scan, switches
from components.train_eval.charts.lamps import Drawn
from components.train_eval.headlines import headlines

Data = Mapping[str, Any]


SCREEN_PX, WORDS = 760, 1.7
"""Height of a figure in presenter mode, and how much larger its words are."""


def theme() -> Theme:
    """The theme that the visitor sees."""
    return "dark" if st.context.theme.type == "dark" else "light"


def draw_figure(result: Data, key: str, presenting: bool) -> None:
    """Headline numbers, then the one figure of the study; larger when ``presenting``."""
    study = _drawable(result)
    if not study:
        st.caption("For example")
        st.code(_EXAMPLE, wrap_lines=True)
        return
    with st.container(horizontal=True, key=f"{key}-headline"):
        for name, value, against in headlines(study, result):
            with st.container(width="content", gap=None):
                st.caption(name)
                st.markdown(f"### {value}")
                st.caption(against)
    charts = _FIGURES[study](result, key)
    charts = charts if isinstance(charts, list) else [charts]
    for number, chart in enumerate(charts):
        drawn = _enlarged(chart) if presenting and len(charts) == 1 else chart
        st.altair_chart(drawn, key=f"{key}-{study}-{number}", width="stretch")


def _enlarged(chart: Drawn) -> alt.LayerChart:
    """The same chart for a projector: as tall as the screen allows, with larger words. Axes follow the page's own type."""
    spec = chart.to_dict()
    data = spec.pop("datasets", {})
    factors = {"height": min(max(SCREEN_PX / spec["height"], 1.0), WORDS), "fontSize": WORDS, "labelLimit": WORDS}

    def grown(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {k: grown(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [grown(v) for v in value]
        return value * factors[name] if name in factors and isinstance(value, (int, float)) else value

    return alt.LayerChart.from_dict({**grown(spec), "datasets": data})


_EXAMPLE = """model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
batch = (torch.randn(32, 8), torch.randint(0, 3, (32,)))
"""
"""Stands in place of the figure of a program that is missing or has failed."""


def _drawable(result: Data) -> str:
    """The study whose figure can be drawn; empty when a visitor's program left nothing to draw."""
    study = result["study"]
    if study in ("batch by batch", "serving") and not result["batchnorm"]:
        return "batch size"  # torch refused the batch: show which sizes it takes
    return "" if study == "modules" and result["scan"]["modes"] is None else study


def _trace_figure(result: Data, key: str) -> list[Drawn]:
    channels = len(result["batchnorm"][0]["batch_mean"])
    channel = 0
    if channels > 1:
        channel = int(st.pills("Channel", range(min(channels, 8)), default=0, required=True, key=f"{key}-channel", label_visibility="collapsed", format_func=lambda c: f"channel {c}") or 0)  # fmt: skip
    return batchnorm.trace_charts(result["batchnorm"], channel, theme())


_FIGURES: dict[str, Callable[[Data, str], Any]] = {
    "masks": lambda r, key: dropout.mask_chart(r["dropout"], theme()),
    "convergence": lambda r, key: dropout.convergence_charts({**r["dropout"], "p": r["chosen"]["p"]}, theme()),
    "MC dropout": lambda r, key: dropout.mc_chart(r["mc_dropout"], theme()),
    "who listens": lambda r, key: dropout.listener_chart(r["listeners"], theme()),
    "batch by batch": _trace_figure,
    "batch size": lambda r, key: batchnorm.size_chart(r["sizes"], r["chosen"]["batch"], theme()),
    "serving": lambda r, key: batchnorm.serving_charts(r["serving"], r["chosen"]["shift"], theme()),
    "other norms": lambda r, key: batchnorm.reach_chart(r["norms"], theme()),
    "freezing": lambda r, key: batchnorm.treatment_chart(r["treatments"], r["chosen"]["treatment"], theme()),
    "both switches": lambda r, key: switches.switch_chart(r["switches"], (r["chosen"]["mode"], r["chosen"]["gradients"]), theme()),
    "modules": lambda r, key: scan.gap_chart(r["scan"]["modes"], theme()),
    "forgotten eval": lambda r, key: scan.cost_chart(r["scan"]["cost"]["rows"], theme()),
}  # fmt: skip


def draw_tables(result: Data, key: str) -> None:
    """The numbers behind the figure, a tab each."""
    tables = {name: rows for name, rows in _tables(result) if rows}
    if not tables:
        return
    for tab, (name, rows) in zip(st.tabs(list(tables)), tables.items(), strict=True):
        with tab:
            data = pd.DataFrame(rows)
            numbers = {c: st.column_config.NumberColumn(format="%.7g") for c in data.select_dtypes("float")}
            st.dataframe(data, hide_index=True, column_config=numbers, key=f"{key}-{name}")


def _tables(result: Data) -> list[tuple[str, Sequence[Data]]]:
    scanned = result["scan"] or {}
    modes, cost = scanned.get("modes") or {}, scanned.get("cost") or {}
    study = result["study"]
    return [
        ("Convergence", result["dropout"]["convergence"] if study in ("masks", "convergence") else ()),
        ("Samples", (result["mc_dropout"] or {}).get("samples", ())),
        ("Layers", result["listeners"] or ()),
        ("Batches", result["batchnorm"] if study in ("batch by batch", "serving") else ()),
        ("Batch sizes", result["sizes"] or ()),
        ("Serving", result["serving"] or ()),
        ("Norms", [{k: v for k, v in row.items() if k != "shares"} for row in result["norms"] or ()]),
        ("Treatments", result["treatments"] or ()),
        ("Recomputed statistics", _columns(result["recomputed"])),
        ("Combinations", result["switches"] or ()),
        ("Modules", modes.get("modules", ()) if study == "modules" else ()),
        ("Ignores eval()", modes.get("ignoring", ())),
        ("Forgotten eval()", cost.get("rows", ()) if study == "forgotten eval" else ()),
    ]


def _columns(record: Data | None) -> list[Data]:
    """A record of equally long lists as rows, one a channel."""
    return [dict(zip(record, row, strict=True)) for row in zip(*record.values(), strict=True)] if record else []
