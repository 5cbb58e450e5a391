"""The views of the page: tensors that moved, frozen midway, how much to freeze, low rank, a program."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from components.fine_tuning.charts import moved as charts
from components.frame import experiment as frame
from components.kit.charts import draw_chart, theme
from components.kit.headline import Metric, headline
from components.kit.tables import draw_table
from lab.records.fine_tuning import FineTuningResult, LowRankRun, Moved

Page = frame.ExperimentPage[FineTuningResult]
Side = frame.Side[FineTuningResult]


def draw_view(page: Page, side: Side) -> None:
    """The one figure of the view that was measured."""
    {"moved": _moved, "midway": _midway, "share": _share, "lora": _lora, "own": _own}[side.result.view](page, side)


def _distance(rows: tuple[Moved, ...], part: str) -> str:
    chosen = [
        r
        for r in rows
        if (r.kind == "statistic" if part == "statistics" else r.kind == "weight" and r.name.startswith(part))
    ]
    total = sum(r.distance**2 for r in chosen) ** 0.5
    return f"{total:.3g}" if total else "0"


def _moved(page: Page, side: Side) -> None:
    result = side.result
    second = result.accuracy[-1]
    numbers: list[Metric] = [
        ("backbone moved", _distance(result.moved, "backbone"), "Euclidean distance"),
        ("statistics moved", _distance(result.moved, "statistics"), "BatchNorm's buffers"),
        ("head moved", _distance(result.moved, "head"), f"loss {result.losses[0]:.3g} to {result.losses[-1]:.3g}"),
        ("accuracy", f"{second.after:.3f}", f"{second.before:.3f} before"),
        ("trainable / held", f"{result.trainable_count:,} / {result.held_count:,}", "numbers"),
    ]
    headline(numbers, side.key, presenting=page.presenting)
    draw_chart(charts.moved_chart(result.moved, theme()), f"{side.key}-moved", presenting=page.presenting)


def _midway(page: Page, side: Side) -> None:
    st.markdown("**Frozen after 10 steps, then 20 more**: how far the frozen weights moved")
    draw_chart(charts.midway_chart(side.result.midway, theme()), f"{side.key}-midway", presenting=page.presenting)


def _share(page: Page, side: Side) -> None:
    st.markdown("**How much to freeze**, for a near and a far task with little and much data")
    draw_chart(charts.share_chart(side.result.shares, theme()), f"{side.key}-share", presenting=page.presenting)


def _lora(page: Page, side: Side) -> None:
    one = side.result.lora
    assert one is not None
    headline(_rank_numbers(one), side.key, presenting=page.presenting)
    draw_chart(
        charts.ranks_chart(side.result.ranks, one.rank, theme()), f"{side.key}-ranks", presenting=page.presenting
    )


def _rank_numbers(one: LowRankRun) -> list[Metric]:
    return [
        ("rank of the update", str(one.update_rank), "by singular values in float64"),
        ("gradient of A, first step", f"{one.first_gradient_a:.3g}", "B is zero"),
        ("gradient of B, first step", f"{one.first_gradient_b:.3g}", "A is random"),
        ("merged, outputs differ by", f"{one.merge_gap:.2g}", "largest of all"),
        ("accuracy", f"{one.accuracy:.3f}", "on the second task"),
    ]


def _own(page: Page, side: Side) -> None:
    result = side.result
    if not result.moved:
        st.caption("No tensor of the program was trained yet.")
        return
    numbers: list[Metric] = [
        ("steps", f"{result.steps:,}", "of optimizers"),
        ("tensors that moved", f"{sum(r.distance > 0 for r in result.moved)} of {len(result.moved)}", ""),
        ("held, gone from the model", f"{result.foreign_count:,}", "numbers"),
        ("trainable, held by nobody", str(len(result.missing)), "tensors"),
    ]
    headline(numbers, side.key, presenting=page.presenting)
    draw_chart(charts.moved_chart(result.moved, theme()), f"{side.key}-moved", presenting=page.presenting)
    if len(result.moved) > charts.MOST:
        st.caption(f"The first {charts.MOST} of {len(result.moved)} tensors.")


_TENSORS = {
    "tensor": "", "kind": "", "shape": "", "distance": "Euclidean, in float64.", "relative": "To its norm before.", "trainable": "requires_grad at the end.",
    "held": "By an optimizer.", "gradient": "At the last step.",
}  # fmt: skip
_SHARES = {
    "frozen": "",
    "of all weights": "",
    "task": "",
    "data": "",
    "accuracy": "Mean of three seeds.",
    "lowest": "",
    "highest": "",
    "lost on the first task": "Accuracy before, less after, with the old head.",
}
_RANKS = {
    "rank": "",
    "trained": "",
    "rank of the update": "",
    "merge gap": "",
    "equal at the start": "",
    "accuracy": "",
}


def draw_details(side: Side) -> None:
    """The rows behind the figure."""
    result = side.result
    if result.moved:
        rows: list[dict[str, Any]] = [
            dict(zip(_TENSORS, (r.name, r.kind, str(list(r.shape)), r.distance, r.relative, _yes(r.trainable), _yes(r.held), r.gradient), strict=True))
            for r in result.moved
        ]  # fmt: skip
        draw_table(rows, _TENSORS, f"{side.key}-tensors", "")
    if result.accuracy:
        table = [
            {"accuracy on": a.task, "before": f"{a.before:.3f}", "after": f"{a.after:.3f}"} for a in result.accuracy
        ]
        st.table(pd.DataFrame(table).set_index("accuracy on"))
    if result.shares:
        rows = [
            dict(zip(_SHARES, (r.frozen, r.share, r.task, r.data, r.accuracy, r.low, r.high, r.forgotten), strict=True))
            for r in result.shares
        ]
        draw_table(rows, _SHARES, f"{side.key}-shares", "")
    if result.ranks:
        rows = [
            dict(
                zip(
                    _RANKS,
                    (r.rank, r.trainable, r.update_rank, r.merge_gap, _yes(r.same_at_start), r.accuracy),
                    strict=True,
                )
            )
            for r in result.ranks
        ]
        draw_table(rows, _RANKS, f"{side.key}-rank-rows", "")


def _yes(value: bool) -> str:
    return "yes" if value else "no"
