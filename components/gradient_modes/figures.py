"""The views of the page: the program in bands, the measured modes, and the table of later uses."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from components.frame import experiment as frame
from components.gradient_modes.mode_bands import KEYS, mode_bands
from components.kit.tables import draw_table
from lab.quantities import bytes_text
from lab.records.gradient_modes import ModesOfGradients

__all__ = ["KEYS", "draw_details", "draw_view"]
Page = frame.ExperimentPage[ModesOfGradients]
Side = frame.Side[ModesOfGradients]


def draw_view(page: Page, side: Side) -> None:
    """The one figure of the view that was measured."""
    {"program": _program, "matrix": _matrix, "uses": _uses}[side.result.view](page, side)


def _program(page: Page, side: Side) -> None:
    mode_bands(side.result, key=f"{side.key}-bands", height=600, presenter=page.presenting, sites=side.sites)


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.2f}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _matrix(page: Page, side: Side) -> None:
    result = side.result
    st.markdown("**One operation in each mode**: the last row is the one that was chosen")
    rows = [
        {
            "mode": row.mode,
            "backward reaches the leaf": _yes(row.records),
            "node": row.grad_fn or "none",
            "inference tensor": _yes(row.inference),
            "version counter": "none" if row.version is None else str(row.version),
            "kept for backward": bytes_text(row.saved_bytes),
            "× 2 (µs)": _us(row.mul_s),
            "in place (µs)": _us(row.inplace_s),
            "view (µs)": _us(row.view_s),
            "enter and leave (µs)": _us(row.enter_s),
        }
        for row in result.modes
    ]
    st.table(pd.DataFrame(rows).set_index("mode"))
    st.markdown("**A whole forward, train and eval with each mode**: 128 rows, BatchNorm and Dropout")
    cells: list[dict[str, Any]] = [
        {
            "switches": f"{'train' if cell.training else 'eval'}, {cell.mode}",
            "requires grad": _yes(cell.requires_grad),
            "inference tensor": _yes(cell.inference),
            "nodes": str(cell.nodes),
            "kept for backward": bytes_text(cell.saved_bytes),
            "running statistics": "moved" if cell.stats_moved else "unchanged",
            "two calls": "equal" if cell.two_calls_equal else "differ",
            "forward (ms)": f"{cell.forward_s * 1e3:.3f}",
        }
        for cell in result.matrix23
    ]
    st.table(pd.DataFrame(cells).set_index("switches"))


def _uses(page: Page, side: Side) -> None:
    result = side.result
    kinds, uses = list(dict.fromkeys(u.kind for u in result.uses)), list(dict.fromkeys(u.use for u in result.uses))
    cells = {(u.use, u.kind): u for u in result.uses}
    table = pd.DataFrame(
        [[_cell(cells[use, kind].outcome, cells[use, kind].message) for kind in kinds] for use in uses],
        index=uses,
        columns=kinds,
    )
    table.index.name = "later use"
    told = "**Rows: what is done with it. Columns: how the tensor was born.**"
    if page.presenting:  # heads that wrap: every column fits the screen
        st.markdown(told)
        st.table(table.replace("✕ fails", "✕").style.map(_style))
        return
    st.markdown(f"{told} Click a cell for torch's message and a program that shows it.")
    chosen = st.dataframe(
        table.style.map(_style),
        key=f"{side.key}-uses",
        on_select="rerun",
        selection_mode="single-cell",
        height=480,
    )
    picked = list(chosen["selection"]["cells"]) or [(uses.index("times a parameter"), "inference")]
    row, column = picked[0]
    use = cells[uses[row], column]
    st.markdown(f"**{use.use}, {use.kind}: {'works' if use.outcome == 'ok' else use.outcome}**")
    if use.message:
        st.text(use.message)
    st.code(use.code)


def _cell(outcome: str, message: str) -> str:
    if outcome != "ok":
        return "✕ fails"
    return f"✓ {message}" if 0 < len(message) < 16 else "✓"


def _style(text: str) -> str:
    return "background-color: rgba(220, 38, 38, 0.18)" if text.startswith("✕") else ""


_OPERATIONS = {
    "line": "", "operation": "", "mode": "", "name": "", "requires grad": "", "node": "", "inference tensor": "",
    "version": "Empty: it keeps no version counter.",
}  # fmt: skip
_SWITCHES = {"line": "", "from": "", "to": "", "how": "", "operations before": ""}


def draw_details(side: Side) -> None:
    """The rows behind the figure of the program."""
    result = side.result
    if result.view != "program":
        return
    operations, births, switches = st.tabs(["Operations", "Births", "Changes of mode"])
    with operations:
        rows: list[dict[str, Any]] = [
            {
                "line": op.line, "operation": op.op, "mode": op.mode, "name": op.name, "requires grad": _yes(op.requires_grad),
                "node": op.grad_fn, "inference tensor": _yes(op.inference), "version": op.version,
            }
            for op in result.lines
        ]  # fmt: skip
        draw_table(rows, _OPERATIONS, f"{side.key}-operations", "")
    with births:
        rows = [
            {
                "name": b.name, "line": b.line, "mode": b.mode, "operation": b.op, "shape": str(list(b.shape)),
                "inference tensor": _yes(b.inference), "mode switched on line": b.switch_line, "history cut on line": b.cut_line,
            }
            for b in result.births
        ]  # fmt: skip
        draw_table(rows, dict.fromkeys(rows[0], "") if rows else {}, f"{side.key}-births", "")
    with switches:
        rows = [
            {"line": s.line, "from": s.from_, "to": s.to, "how": s.how, "operations before": s.step}
            for s in result.switches
        ]
        draw_table(rows, _SWITCHES, f"{side.key}-switches", "")
