"""The figures of the page on train and eval mode: headline numbers, charts and tables of each study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
import streamlit as st

from components.kit.charts import draw_chart, theme
from components.kit.headline import headline
from components.train_eval.charts import batchnorm, dropout, scan, switches
from components.train_eval.charts.lamps import Drawn
from components.train_eval.headlines import headlines, part
from lab.records.modes import ModesResult
from lab.records.modes_batchnorm import BatchRow, Recomputed


def draw_figure(result: ModesResult, key: str, presenting: bool) -> None:
    """Headline numbers, then the one figure of the study; larger when ``presenting``."""
    study = _drawable(result)
    if not study:
        st.caption("For example")
        st.code(_EXAMPLE, wrap_lines=True)
        return
    headline(headlines(study, result), key, presenting=presenting)
    charts = _FIGURES[study](result, key)
    charts = charts if isinstance(charts, list) else [charts]
    for number, chart in enumerate(charts):
        draw_chart(chart, f"{key}-{study}-{number}", presenting=presenting)


_EXAMPLE = """model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
batch = (torch.randn(32, 8), torch.randint(0, 3, (32,)))
"""
"""Stands in place of the figure of a program that is missing or has failed."""


def _drawable(result: ModesResult) -> str:
    """The study whose figure can be drawn; empty when a visitor's program left nothing to draw."""
    if result.study in ("batch by batch", "serving") and not result.batchnorm:
        return "batch size"  # torch refused the batch: show which sizes it takes
    return "" if result.study == "modules" and part(result.scan).modes is None else result.study


def _trace_figure(rows: Sequence[BatchRow], key: str) -> list[Drawn]:
    channels = len(rows[0].batch_mean)
    channel = 0
    if channels > 1:
        channel = int(st.pills("Channel", range(min(channels, 8)), default=0, required=True, key=f"{key}-channel", label_visibility="collapsed", format_func=lambda c: f"channel {c}") or 0)  # fmt: skip
    return batchnorm.trace_charts(rows, channel, theme())


_FIGURES: dict[str, Callable[[ModesResult, str], Drawn | list[Drawn]]] = {
    "masks": lambda r, key: dropout.mask_chart(part(r.dropout), theme()),
    "convergence": lambda r, key: dropout.convergence_charts(part(r.dropout), r.chosen.p, theme()),
    "MC dropout": lambda r, key: dropout.mc_chart(part(r.mc_dropout), theme()),
    "who listens": lambda r, key: dropout.listener_chart(part(r.listeners), theme()),
    "batch by batch": lambda r, key: _trace_figure(part(r.batchnorm), key),
    "batch size": lambda r, key: batchnorm.size_chart(part(r.sizes), r.chosen.batch, theme()),
    "serving": lambda r, key: batchnorm.serving_charts(part(r.serving), r.chosen.shift, theme()),
    "other norms": lambda r, key: batchnorm.reach_chart(part(r.norms), theme()),
    "freezing": lambda r, key: batchnorm.treatment_chart(part(r.treatments), r.chosen.treatment, theme()),
    "both switches": lambda r, key: switches.switch_chart(
        part(r.switches), (r.chosen.mode, r.chosen.gradients), theme()
    ),
    "modules": lambda r, key: scan.gap_chart(part(part(r.scan).modes), theme()),
    "forgotten eval": lambda r, key: scan.cost_chart(part(part(r.scan).cost).rows, theme()),
}


def draw_tables(result: ModesResult, key: str) -> None:
    """The numbers behind the figure, a tab each."""
    tables = {name: data for name, data in _tables(result) if len(data)}
    if not tables:
        return
    for tab, (name, data) in zip(st.tabs(list(tables)), tables.items(), strict=True):
        with tab:
            numbers = {c: st.column_config.NumberColumn(format="%.7g") for c in data.select_dtypes("float")}
            st.dataframe(data, hide_index=True, column_config=numbers, key=f"{key}-{name}")


def _tables(result: ModesResult) -> Iterator[tuple[str, pd.DataFrame]]:
    """A row a record, a column a field."""
    modes, cost = (result.scan.modes, result.scan.cost) if result.scan else (None, None)
    study = result.study
    rows: dict[str, Sequence[Any] | None] = {
        "Convergence": result.dropout.convergence if result.dropout and study in ("masks", "convergence") else None,
        "Samples": result.mc_dropout.samples if result.mc_dropout else None,
        "Layers": result.listeners,
        "Batches": result.batchnorm if study in ("batch by batch", "serving") else None,
        "Batch sizes": result.sizes,
        "Serving": result.serving,
        "Norms": result.norms,
        "Treatments": result.treatments,
        "Recomputed statistics": _channels(result.recomputed) if result.recomputed else None,
        "Combinations": result.switches,
        "Modules": modes.modules if modes and study == "modules" else None,
        "Ignores eval()": modes.ignoring if modes else None,
        "Forgotten eval()": cost.rows if cost and study == "forgotten eval" else None,
    }
    for name, records in rows.items():
        yield name, pd.DataFrame(records or ()).drop(columns="shares", errors="ignore")


def _channels(statistics: Recomputed) -> list[dict[str, float]]:
    """One row a channel."""
    columns = asdict(statistics)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
