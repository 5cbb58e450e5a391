"""A checkpoint plan as charts: peak against what runs twice, and what each block keeps."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MEMORY, Theme
from components.memory_timeline.charts.memory import unit_of
from lab.quantities import bytes_text, short_bytes_text
from lab.records.memory_plan import CheckpointPlan


def frontier_chart(plan: CheckpointPlan, theme: Theme, *, font_px: int = 13, height: int = 300) -> Any:
    """The share of the blocks' forward that must run twice for each peak, the budget, and the choices as they ran."""
    most = max(
        *plan.frontier_bytes, *(run.peak_bytes for run in plan.runs), min(plan.budget_bytes, 2 * plan.least_bytes)
    )
    scale, unit = unit_of(most)
    share = lambda cost: 100 * cost / plan.forward_cost  # noqa: E731
    line = [
        {"size": size / scale, "share": share(cost), "exact": bytes_text(size)}
        for size, cost in zip(plan.frontier_bytes, plan.frontier_cost, strict=True)
    ]
    points = [
        {"size": run.peak_bytes / scale, "share": share(plan.forward_cost if run.recomputed_cost is None else run.recomputed_cost),
         "name": run.name, "exact": bytes_text(run.peak_bytes),
         "modelled": "" if run.modelled_peak_bytes is None else bytes_text(run.modelled_peak_bytes)}
        for run in plan.runs
    ]  # fmt: skip
    low = min(row["size"] for row in (*line, *points))
    x = alt.X(
        "size:Q",
        title=f"peak ({unit})",
        scale=alt.Scale(domain=[0.9 * low, 1.15 * most / scale], nice=False, zero=False),
    )
    y = alt.Y("share:Q", title="run twice (%)", scale=alt.Scale(domain=[-4, 112], nice=False))
    ink, hue = GRAPH[theme]["ink"], MEMORY[theme]["activations"]
    layers: list[Any] = [
        alt.Chart(pd.DataFrame(line)).mark_line(interpolate="step-after", strokeWidth=2, color=hue).encode(x=x, y=y),
        alt.Chart(pd.DataFrame(line)).mark_point(size=50, color=hue).encode(
            x=x, y=y, tooltip=[alt.Tooltip("exact", title="peak, by the sum"), alt.Tooltip("share", title="run twice (%)", format=".0f")],
        ),
        alt.Chart(pd.DataFrame(points)).mark_point(filled=True, opacity=1, size=110, color=ink).encode(
            x=x, y=y, tooltip=[alt.Tooltip("name", title="choice"), alt.Tooltip("exact", title="peak"), alt.Tooltip("modelled", title="by the sum")],
        ),
    ]  # fmt: skip
    for above in (True, False):  # every block and √n are level, and may be close
        named = [row for row in points if ("√n" not in row["name"]) == above]
        if named:
            text = alt.Chart(pd.DataFrame(named)).mark_text(
                align="left", dx=9, dy=(-0.8 if above else 1.1) * font_px, fontSize=font_px, color=ink
            )
            layers.append(text.encode(x=x, y=y, text="name:N"))
    if plan.budget_bytes <= 1.15 * most:
        at = pd.DataFrame(
            [{"size": plan.budget_bytes / scale, "text": f"budget {short_bytes_text(plan.budget_bytes)}"}]
        )
        rule = alt.Chart(at).mark_rule(strokeDash=[7, 4], strokeWidth=2, color=ink)
        label = alt.Chart(at).mark_text(align="left", baseline="top", dx=6, fontSize=font_px, color=ink)
        layers = [
            rule.encode(x=x, tooltip=alt.Tooltip("text", title="")),
            *layers,
            label.encode(x=x, y=alt.value(2), text="text:N"),
        ]
    return alt.layer(*layers).properties(height=height, description=_described(plan))


def _described(plan: CheckpointPlan) -> str:
    said = ", ".join(f"{run.name} {short_bytes_text(run.peak_bytes)}" for run in plan.runs)
    return f"Peak against the share of the blocks' forward that runs twice: {said}; budget {short_bytes_text(plan.budget_bytes)}."


def blocks_chart(plan: CheckpointPlan, theme: Theme) -> Any:
    """What each block keeps under the plan, and what it would keep otherwise."""
    scale, unit = unit_of(max((max(b.kept_bytes, b.checkpointed_bytes) for b in plan.blocks), default=1))
    names = ["kept", "kept, checkpointed", "computed again"]
    rows = []
    for block in plan.blocks:
        saved = max(0, block.kept_bytes - block.checkpointed_bytes)
        parts = (
            {"kept, checkpointed": block.checkpointed_bytes, "computed again": saved}
            if block.checkpointed
            else {"kept": block.kept_bytes}
        )
        rows += [
            {"block": block.number, "part": name, "order": names.index(name), "size": size / scale,
             "exact": bytes_text(size), "path": block.path}
            for name, size in parts.items()
        ]  # fmt: skip
    hues = [MEMORY[theme][name] for name in ("activations", "inputs", "temporaries")]
    shown = [name for name in names if any(row["part"] == name for row in rows)]
    color = alt.Color(
        "part:N", sort=shown, scale=alt.Scale(domain=shown, range=[hues[names.index(name)] for name in shown]),
        legend=alt.Legend(title=None, orient="top", direction="horizontal"),
    )  # fmt: skip
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_bar()
        .encode(
            x=alt.X("block:O", title="block, in the order of the forward", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("size:Q", title=f"bytes ({unit})", stack=True),
            color=color, order="order:Q",
            tooltip=[alt.Tooltip("path", title="block"), alt.Tooltip("part", title=""), alt.Tooltip("exact", title="bytes")],
        )
        .properties(height=190, description=f"Bytes that each of {len(plan.blocks)} blocks keeps under the plan.")
    )  # fmt: skip
