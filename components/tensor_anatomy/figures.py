"""The views of the page: the program with its memory, and the panels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import pandas as pd
import streamlit as st

from components.frame import experiment as frame
from components.kit.palette import Theme
from components.kit.tables import draw_table, plain_text
from components.tensor_anatomy.charts.panels import product_chart, promotion_chart, sum_chart
from components.tensor_anatomy.memory_strips import memory_strips
from components.tensor_anatomy.memory_strips.scene import sentence
from lab.records.tensors import TensorResult

Page = frame.ExperimentPage[TensorResult]
Side = frame.Side[TensorResult]


def theme() -> Theme:
    """The theme that the visitor sees."""
    return "dark" if st.context.theme.type == "dark" else "light"


def draw_view(page: Page, side: Side) -> None:
    """The one figure of the view that was measured."""
    _VIEWS[side.result.view](page, side)


def _program(page: Page, side: Side) -> None:
    result = side.result
    if result.refusals:
        _refusal(result)
    memory_strips(
        result,
        key=f"{side.key}-strips",
        height=620,
        presenter=page.presenting,
        sites=side.sites,
        listing=result.view == "lines",
    )


def _refusal(result: TensorResult) -> None:
    """Why ``view`` refused, dimension by dimension."""
    refusal = result.refusals[-1]
    if not refusal.apart:
        return
    first, second = refusal.apart
    rows = [
        {
            "dimension": str(dim),
            "size": size,
            "stride": step,
            "": "no neighbours" if dim in refusal.apart else "",
            "stride for one piece": str(refusal.shape[second] * refusal.stride[second]) if dim == first else "",
        }
        for dim, (size, step) in enumerate(zip(refusal.shape, refusal.stride, strict=True))
    ]
    with st.expander(
        f"Why view({', '.join(map(str, refusal.asked_shape))}) was refused on line {refusal.line}", expanded=True
    ):
        st.table(pd.DataFrame(rows).set_index("dimension"))


def _promotion(page: Page, side: Side) -> None:
    result = side.result
    st.altair_chart(
        promotion_chart(result.promotion, result.chosen_pair, theme(), _scale(page)),
        key=f"{side.key}-pairs",
        width="stretch",
    )
    st.markdown("**Three tiers**: tensors with dimensions, then 0-dim tensors, then Python numbers")
    _table(
        result.tiers, {"expression": "", "result": "dtype of the result", "value": "", "why": ""}, f"{side.key}-tiers"
    )


def _precision(page: Page, side: Side) -> None:
    result = side.result
    st.markdown("**A product (32, K) @ (K, 32)**: what the products are added up in decides")
    st.altair_chart(product_chart(result.errors, theme(), _scale(page)), key=f"{side.key}-products", width="stretch")
    st.markdown("**One sum, in several orders and formats**")
    st.altair_chart(sum_chart(result.errors, theme(), _scale(page)), key=f"{side.key}-sums", width="stretch")
    rows = [
        {
            "dtype": row.dtype,
            "bytes": row.bytes,
            "significant bits": row.significant_bits,
            "counts to": f"{row.counts_to:,.0f}" if row.counts_to < 1e9 else f"{row.counts_to:.4g}",
            "largest": f"{row.largest:.4g}",
            "smallest normal": f"{row.smallest_normal:.2g}",
            "eps": f"{row.eps:.2g}",
        }
        for row in result.formats
    ]
    helps = {
        "dtype": "", "bytes": "Of one number.", "significant bits": "With the hidden one.", "counts to": "Where a counter that adds 1 stops.",
        "largest": "", "smallest normal": "", "eps": "Distance from 1 to the next number.",
    }  # fmt: skip
    draw_table(rows, helps, f"{side.key}-formats", "")


def _numpy(page: Page, side: Side) -> None:
    rows = [
        {
            "way": row.call,
            "memory": {True: "shared", False: "copied", None: "—"}[row.shares],
            "gives": row.dtype,
            "says": row.error,
        }
        for row in side.result.bridges
    ]
    helps = {
        "way": "",
        "memory": "Written on one side, looked at on the other.",
        "gives": "",
        "says": "What torch or NumPy says.",
    }
    draw_table(rows, helps, f"{side.key}-ways", "")


def _devices(page: Page, side: Side) -> None:
    result = side.result
    if result.accelerator:
        st.markdown(f"**`torch.accelerator` picks `{result.accelerator.device}` here**")
        st.code(result.accelerator.snippet)
    st.markdown("**What a move returns**")
    rows = [
        {
            "call": row.call,
            "same object": _yes(row.same_object),
            "same memory": _yes(row.same_address),
            "optimizer still holds it": _yes(row.optimizer_keeps),
            "says": row.error,
        }
        for row in result.moves
    ]
    draw_table(rows, dict.fromkeys(rows[0], "") if rows else {}, f"{side.key}-moves", "")
    st.markdown("**One tensor on the CPU, one on `meta`**: what torch does, and the rule of one device an operation")
    rows = [
        {"operation": row.call, "torch": row.torch_says, "the rule": "refuses" if row.refused_by_rule else "accepts"}
        for row in result.mixed
    ]
    draw_table(
        rows,
        {"operation": "", "torch": "", "the rule": "0-dim CPU tensors may join any device."},
        f"{side.key}-mixed",
        "",
    )
    st.markdown("**Memory formats of images**")
    helps = {"tensor": "", "shape": "", "stride": "", "contiguous": "", "channels_last": "", "view": "view(N, -1)"}
    _table(result.layouts, helps, f"{side.key}-layouts")


def _data(page: Page, side: Side) -> None:
    result = side.result
    for kind, tab in zip(("image", "text", "table"), st.tabs(["An image", "A text", "A table"]), strict=True):
        with tab:
            steps = [step for step in result.data if step.data == kind]
            helps = {"call": "", "shape": "", "dtype": "", "shows": ""}
            _table(steps, helps, f"{side.key}-{kind}")
            swap = result.swap
            if kind == "image" and swap:
                st.markdown(
                    f"**The layout swapped by `reshape`**: same shape {list(swap.shape)}, {swap.wrong_elements} of {swap.elements} numbers elsewhere"
                )
                rows = {"pixel (1, 2)": swap.pixel, "after permute": swap.permuted, "after reshape": swap.reshaped}
                pixel = {name: [f"{number:g}" for number in numbers] for name, numbers in rows.items()}
                st.table(pd.DataFrame(pixel, index=["red", "green", "blue"]).T)


_VIEWS: dict[str, Callable[[Page, Side], None]] = {
    "lines": _program,
    "memory": _program,
    "promotion": _promotion,
    "precision": _precision,
    "numpy": _numpy,
    "devices": _devices,
    "data": _data,
}


def _table(records: Iterable[Any], helps: dict[str, str], key: str) -> None:
    rows = [{name: _cell(value) for name, value in asdict(record).items()} for record in records]
    draw_table([{name: row[name] for name in helps} for row in rows], helps, key, "")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return _yes(value)
    if isinstance(value, (int, float)):
        return value
    return plain_text(list(value) if isinstance(value, tuple) else value)


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: ""}[value]


def _scale(page: Page) -> float:
    return 1.5 if page.presenting else 1.0


_LINES = {
    "line": "", "operation": "", "kind": "", "name": "", "shape": "", "strides": "In elements.", "offset": "", "dtype": "",
    "new bytes": "Memory taken for the result.", "shares with": "", "repeated": "Inputs that were repeated to fit.",
    "promoted from": "", "memory": "Number of the piece.", "module": "", "inputs": "",
}  # fmt: skip


def draw_details(side: Side) -> None:
    """The rows behind the figure, and einsum as loops."""
    result = side.result
    if not result.lines:
        return
    st.caption(sentence(result))
    tabs = st.tabs(["Operations", *(["einsum"] if result.einsums else [])])
    with tabs[0]:
        rows = [
            {
                "line": line.line, "operation": line.op, "kind": line.kind, "name": line.name, "shape": str(list(line.shape)),
                "strides": str(list(line.stride)), "offset": line.offset, "dtype": line.dtype, "new bytes": line.new_bytes,
                "shares with": ", ".join(line.shares_with), "repeated": ", ".join(line.expanded),
                "promoted from": ", ".join(line.promoted_from), "memory": line.storage, "module": line.module,
                "inputs": ", ".join(f"{i.name} {list(i.shape)}" for i in line.inputs),
            }
            for line in result.lines
        ]  # fmt: skip
        draw_table(rows, _LINES, f"{side.key}-lines", "")
    for found in result.einsums if len(tabs) > 1 else ():
        with tabs[1]:
            st.markdown(
                f"**`{found.equation}`** on line {found.line}: {found.products:,} products; torch runs {', '.join(found.operations)}"
            )
            st.code(found.loops)
            if found.difference is not None:
                st.caption(f"Largest difference from these loops in float64: {found.difference:.2e}")
