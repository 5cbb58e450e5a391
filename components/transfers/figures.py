"""The views of the page: waits by line, copies by size, copies beside kernels."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from components.frame import experiment as frame
from components.kit.charts import draw_chart, theme
from components.kit.headline import Metric, headline
from components.kit.tables import draw_table
from components.transfers.charts import waits as charts
from lab.records.transfers import TransferResult

Page = frame.ExperimentPage[TransferResult]
Side = frame.Side[TransferResult]


def draw_view(page: Page, side: Side) -> None:
    """The one figure of the view that was measured."""
    {"waits": _waits, "copies": _copies, "overlap": _overlap}[side.result.view](page, side)


def _waits(page: Page, side: Side) -> None:
    result = side.result
    count = sum(wait.times for wait in result.waits)
    numbers: list[Metric] = [
        ("waits", f"{count:,}", "counted here; what each costs needs a GPU" if all(w.seconds is None for w in result.waits) else "measured"),
        ("lines", str(len({wait.line for wait in result.waits})), "of the program"),
        ("waits a step", f"{count / result.steps:.3g}" if result.steps else "—", f"{result.steps:,} optimizer steps"),
    ]  # fmt: skip
    headline(numbers, side.key, presenting=page.presenting)
    if result.waits:
        draw_chart(
            charts.waits_chart(result.waits, result.code, theme()), f"{side.key}-waits", presenting=page.presenting
        )
    else:
        st.caption("No line of the program needs a value on the host.")


def _copies(page: Page, side: Side) -> None:
    st.markdown("**Copies by size**: the shortest of rounds in turns")
    draw_chart(charts.copies_chart(side.result.bandwidth, theme()), f"{side.key}-copies", presenting=page.presenting)
    if not page.presenting:
        _flags(side.result)


def _flags(result: TransferResult) -> None:
    st.markdown("**What pinning and non_blocking do here**, tried now")
    rows = [
        {"call": flag.call, "outcome": flag.outcome, "": "✓" if flag.helps else "without effect"}
        for flag in result.flags
    ]
    st.table(pd.DataFrame(rows).set_index("call"))


def _overlap(page: Page, side: Side) -> None:
    result = side.result
    if result.needs_gpu:
        st.info(f"This view needs {result.needs_gpu}.", icon=":material/memory:")
        _flags(result)
        return
    numbers: list[Metric] = [
        ("hidden", "—" if result.overlap is None else f"{result.overlap:.0%}", "of the shorter part")
    ]
    if result.early_wrong is not None:
        numbers.append(
            (
                "early reads that were wrong",
                f"{result.early_wrong} of {result.early_reads}",
                "before the copy had ended",
            )
        )
    headline(numbers, side.key, presenting=page.presenting)
    draw_chart(charts.lanes_chart(result.lanes, theme()), f"{side.key}-lanes", presenting=page.presenting)


_WAITS = {
    "line": "",
    "what": "What the program wrote.",
    "operation": "By which the value comes.",
    "times": "",
    "in a loop": "",
    "seconds": "In all, on a CUDA device.",
}
_COPIES = {"kind": "", "bytes": "", "seconds": "The shortest of rounds in turns."}


def draw_details(side: Side) -> None:
    """The rows behind the figure."""
    result, b = side.result, side.result.bandwidth
    if result.waits:
        rows: list[dict[str, Any]] = [
            dict(zip(_WAITS, (w.line, w.source, w.op, w.times, "yes" if w.in_loop else "no", w.seconds), strict=True))
            for w in result.waits
        ]
        draw_table(rows, _WAITS, f"{side.key}-rows", "")
    elif b.kind:
        rows = [dict(zip(_COPIES, row, strict=True)) for row in zip(b.kind, b.bytes, b.seconds, strict=True)]
        draw_table(rows, _COPIES, f"{side.key}-copy-rows", "")
