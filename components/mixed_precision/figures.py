"""The views of the page: the window, the scaler, dtypes of a program by line, lost updates, products."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from components.frame import experiment as frame
from components.kit.charts import draw_chart, theme
from components.kit.headline import Metric, headline
from components.kit.tables import draw_table
from components.mixed_precision.charts import window as charts
from lab.records.precision import PrecisionResult

Page = frame.ExperimentPage[PrecisionResult]
Side = frame.Side[PrecisionResult]


def draw_view(page: Page, side: Side) -> None:
    """The one figure of the view that was measured."""
    {"window": _window, "scaler": _scaler, "ops": _ops, "updates": _updates, "matmul": _matmul}[side.result.view](
        page, side
    )


def _window(page: Page, side: Side) -> None:
    result = side.result
    scale = result.layers[0].scale
    dead = sum(layer.zero == 1.0 for layer in result.layers)
    real = next((r.measured_zero for r in result.shares if (r.format, r.scale) == (result.dtype, scale)), None)
    cast = next((r for r in result.shares if (r.format, r.scale) == (result.format, scale)), None)
    numbers: list[Metric] = [
        ("real backward, zero", "—" if real is None else f"{real:.1%}", f"of the gradients, in {result.dtype}"),
        (
            "by casting, zero",
            "—" if cast is None else f"{cast.zero:.1%}",
            f"float32 gradients stored in {result.format}",
        ),
        ("overflow by casting", "—" if cast is None else f"{cast.overflow:.1%}", f"scale {scale:g}"),
        ("layers without gradient", f"{dead} of {len(result.layers)}", "after the real backward"),
    ]
    headline(numbers, side.key, presenting=page.presenting)
    draw_chart(charts.window_chart(result, scale, theme()), f"{side.key}-window", presenting=page.presenting)


def _scaler(page: Page, side: Side) -> None:
    steps = side.result.steps
    if not steps:
        return
    skipped = sum(step.skipped for step in steps)
    numbers: list[Metric] = [
        ("steps skipped", f"{skipped} of {len(steps)}", "the optimizer's hook did not fire"),
        ("scale", f"{steps[-1].scale:g}", f"{steps[0].scale:g} at first"),
        ("loss", f"{steps[-1].loss:.4g}", f"{steps[0].loss:.4g} at first"),
    ]
    headline(numbers, side.key, presenting=page.presenting)
    for number, chart in enumerate(charts.scaler_charts(steps, theme())):
        draw_chart(chart, f"{side.key}-scaler-{number}", presenting=page.presenting)


def _ops(page: Page, side: Side) -> None:
    result = side.result
    if not result.ops:
        st.caption("No operation reached the kernels.")
        return
    st.markdown("**Operations as they reach the kernels**, below autocast; casts are operations of their own")
    rows = [
        {
            "line": op.line, "operation": op.op, "inputs": " ".join(op.inputs), "result": op.output, "times": op.count,
            "": "cast, kept for the region" if op.cached else "cast" if op.cast else "16 bits" if op.output in ("float16", "bfloat16") else "",
        }
        for op in result.ops
    ]  # fmt: skip
    colours = {
        "16 bits": "rgba(64, 110, 220, 0.16)",
        "cast": "rgba(240, 140, 40, 0.16)",
        "cast, kept for the region": "rgba(240, 140, 40, 0.28)",
    }
    frame_ = pd.DataFrame(rows[:200])
    styled = frame_.style.apply(
        lambda row: [f"background-color: {colours[row['']]}" if row[""] in colours else ""] * len(row), axis=1
    )
    st.dataframe(styled, hide_index=True, key=f"{side.key}-ops", height=560 if page.presenting else 460)
    st.caption(
        "What a GPU does otherwise is not measured here: CUDA's lists differ, and PyTorch documents that they raise softmax, layer_norm, exp and sums to float32."
    )
    if len(rows) > 200:
        st.caption(f"The first 200 of {len(rows):,} kinds.")


def _updates(page: Page, side: Side) -> None:
    st.markdown("**One step of Adam**: bars are measured, lines predicted from the distance to the next number")
    draw_chart(charts.updates_chart(side.result.moved, theme()), f"{side.key}-updates", presenting=page.presenting)
    if side.result.drifts and not page.presenting:
        st.markdown("**Sums and averages that are kept in few bits**")
        st.table(pd.DataFrame(charts.drift_rows(side.result.drifts)).set_index("kept"))


def _matmul(page: Page, side: Side) -> None:
    st.markdown("**(8, K) times (K, 8)** against float64")
    draw_chart(charts.matmul_chart(side.result.matmul, theme()), f"{side.key}-matmul", presenting=page.presenting)


_FORMATS = {
    "format": "",
    "largest": "",
    "smallest normal": "",
    "smallest above 0": "",
    "first lost whole number": "",
    "twice the largest": "",
}
_LAYERS = {
    "layer": "",
    "zero": "Share of its gradients, after a real backward in low precision.",
    "zero in float32": "",
    "rms": "Unscaled.",
    "infinite": "",
}
_STEPS = {"step": "", "scale": "", "loss": "", "skipped": "", "cause": "", "first operation": ""}


def draw_details(side: Side) -> None:
    """The rows behind the figure."""
    result = side.result
    tables: dict[str, tuple[list[dict[str, Any]], dict[str, str]]] = {
        "Layers": ([dict(zip(_LAYERS, (r.name, r.zero, r.zero_fp32, r.rms, "yes" if r.infinite else "no"), strict=True)) for r in result.layers], _LAYERS),
        "Formats": ([dict(zip(_FORMATS, (f.name, f.largest, f.smallest_normal, f.smallest, f.lost_integer, f.overflow), strict=True)) for f in result.formats], _FORMATS),
        "Steps": ([dict(zip(_STEPS, (s.step, s.scale, s.loss, "yes" if s.skipped else "no", s.cause, s.first), strict=True)) for s in result.steps], _STEPS),
    }  # fmt: skip
    drawn = {name: table for name, table in tables.items() if table[0]}
    if not drawn:
        return
    for tab, (name, (rows, helps)) in zip(st.tabs(list(drawn)), drawn.items(), strict=True):
        with tab:
            draw_table(rows, helps, f"{side.key}-{name}", "")
