"""The views of the page: curves and parts, the file, names and positions, what loads, and a program."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from components.checkpoint_resume.charts import curves, files
from components.frame import experiment as frame
from components.kit.charts import draw_chart, theme
from components.kit.headline import Metric, headline
from components.kit.tables import draw_table
from lab.quantities import bytes_text
from lab.records.resume import Resumed, ResumeResult, part_words

Page = frame.ExperimentPage[ResumeResult]
Side = frame.Side[ResumeResult]


def draw_view(page: Page, side: Side) -> None:
    """The one figure of the view that was measured."""
    result = side.result
    if result.view == "program" and result.chosen is None:
        _events(page, side)
    else:
        _VIEWS[result.view](page, side)


def _curve(page: Page, side: Side) -> None:
    result = side.result
    if result.chosen is None:
        return
    headline(_numbers(result.chosen), side.key, presenting=page.presenting)
    for number, chart in enumerate(curves.curve_charts(result, theme())):
        draw_chart(chart, f"{side.key}-curves-{number}", presenting=page.presenting)
    if result.omissions and not page.presenting:
        st.markdown("**Each part left out in turn**: how many training losses stay equal before one differs")
        rows = [(part_words(one.left_out), one) for one in result.omissions]
        draw_chart(curves.parts_chart(rows, result.chosen.left_out, theme()), f"{side.key}-parts", presenting=False)


def _numbers(one: Resumed) -> list[Metric]:
    first = "none of 60" if one.first_different is None else f"step {one.first_different}"
    evaluation = one.eval_gap_model or one.eval_gap_average
    which = "of the model" if one.eval_gap_model or not one.eval_gap_average else "of the average of the weights"
    return [
        ("first different training loss", first, "0 is the first after loading"),
        ("gap there", f"{one.first_gap:.4g}", f"mean gap {one.mean_gap:.3g}"),
        ("weights apart", f"{one.weights_apart * 100:.3g} %", "after 60 steps"),
        ("evaluation after loading", f"{evaluation:+.3g}" if evaluation else "equal", f"{which}, against before"),
    ]


def _file(page: Page, side: Side) -> None:
    result = side.result
    st.markdown(f"**The checkpoint: {bytes_text(result.file_bytes)}**, part by part")
    draw_chart(files.bytes_chart(result.parts, part_words, theme()), f"{side.key}-bytes", presenting=page.presenting)
    if page.presenting:
        return
    st.markdown("**Ways to write and read a file**, tried now")
    rows = [
        {"file": c.what, "size": bytes_text(c.bytes), "outcome": ("✕ " if c.refused else "✓ ") + c.outcome}
        for c in result.files
    ]
    st.table(pd.DataFrame(rows).set_index("file"))


def _keys(page: Page, side: Side) -> None:
    keys = side.result.keys
    assert keys is not None
    total = len([row for row in keys.rows if row.model_shape is not None])
    numbers: list[Metric] = [
        ("tensors that hold the file's values", f"{keys.changed} of {total}", "compared after loading"),
        ("missing in the file", str(len(keys.missing)), ""),
        ("unexpected in the file", str(len(keys.unexpected)), f"prefix {keys.prefix!r}" if keys.prefix else ""),
        ("without memory", str(keys.on_meta), ""),
    ]
    headline(numbers, side.key, presenting=page.presenting)
    left, right = st.columns(2) if not side.beside else (st.container(), st.container())
    with left:
        st.markdown("**Names**: file against model")
        rows = [
            {"name": row.name, "in the file": _shape(row.file_shape), "in the model": _shape(row.model_shape), "": _state(row.state)}
            for row in keys.rows
        ]  # fmt: skip
        st.dataframe(
            pd.DataFrame(rows), hide_index=True, key=f"{side.key}-names", height=min(36 * (len(rows) + 1), 420)
        )
        if keys.error:
            st.text(keys.error[:600])
    with right:
        st.markdown("**Positions**: an optimizer's state")
        draw_chart(files.positions_chart(side.result.positions, theme()), f"{side.key}-positions", presenting=False)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "—" if shape is None else "scalar" if not shape else str(list(shape))


def _state(state: str) -> str:
    return {"loaded": "✓ loaded", "missing": "✕ missing", "unexpected": "✕ unexpected"}.get(state, "✕ another shape")


def _loading(page: Page, side: Side) -> None:
    refused = sum(case.refused for case in side.result.refusals)
    st.markdown(
        f"**torch.load with weights_only: {refused} of {len(side.result.refusals)} kinds of object are refused**"
    )
    rows = [
        {"in the file": c.what, "loads": "✕ refused" if c.refused else "✓", "asks for": c.global_, "store instead": c.repair}
        for c in side.result.refusals
    ]  # fmt: skip
    st.table(pd.DataFrame(rows).set_index("in the file"))


def _events(page: Page, side: Side) -> None:
    result = side.result
    if not result.events:
        st.caption("Nothing was saved or loaded yet.")
        return
    draw_chart(
        files.events_chart(result.events, result.losses, theme()), f"{side.key}-events", presenting=page.presenting
    )


_VIEWS = {"curve": _curve, "program": _curve, "file": _file, "keys": _keys, "loading": _loading}
_OMITTED = {
    "left out": "Every other part was restored.", "first different step": "Of the training loss; empty: none of 60.", "first gap": "",
    "mean gap": "Over 60 steps.", "weights apart": "Norm of the difference over the norm, after 60 steps.",
    "evaluation, model": "Right after loading, less right before the stop.", "evaluation, average": "The same for the average of the weights.",
    "rate used": "Learning rate after the first optimizer step.", "rate due": "",
}  # fmt: skip
_EVENTS = {"line": "", "kind": "", "what": ""}
_PARTS = {"part": "", "bytes": "Of a file that holds it alone.", "tensor bytes": "", "entries": "", "restored": ""}


def draw_details(side: Side) -> None:
    """The rows behind the figure."""
    result = side.result
    tables: dict[str, tuple[list[dict[str, Any]], dict[str, str]]] = {
        "Parts left out": ([_row(one) for one in result.omissions], _OMITTED),
        "Parts of the file": ([_part(one) for one in result.parts], _PARTS),
        "Events": ([{"line": e.line, "kind": e.kind, "what": e.text} for e in result.events], _EVENTS),
        "Messages": ([{"file": c.what, "message": c.message} for c in result.refusals if c.refused], {"file": "", "message": ""}),
    }  # fmt: skip
    drawn = {name: table for name, table in tables.items() if table[0]}
    if not drawn:
        return
    for tab, (name, (rows, helps)) in zip(st.tabs(list(drawn)), drawn.items(), strict=True):
        with tab:
            draw_table(rows, helps, f"{side.key}-{name}", "")


def _row(one: Resumed) -> dict[str, Any]:
    values = (
        part_words(one.left_out), one.first_different, one.first_gap, one.mean_gap, one.weights_apart,
        one.eval_gap_model, one.eval_gap_average, one.lr, one.lr_due,
    )  # fmt: skip
    return dict(zip(_OMITTED, values, strict=True))


def _part(one: Any) -> dict[str, Any]:
    values = (part_words(one.name), one.bytes, one.tensor_bytes, one.entries, "yes" if one.restored else "no")
    return dict(zip(_PARTS, values, strict=True))
