"""Charts of a profiled step: its parts, and what its operators reach of what the device can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, STEP, Theme
from lab.quantities import number_text, seconds_text
from lab.records.profiling import Ceilings, Iteration, Operators, Spread

PARTS = {
    "data_loading_s": "data loading",
    "copy_to_device_s": "copy to device",
    "forward_s": "forward",
    "backward_s": "backward",
    "optimizer_s": "optimizer",
    "synchronisation_s": "synchronisation",
    "rest_s": "rest",
}
"""Field of a step -> its name on the picture, in the order in which they run."""
BARE = "without the profiler"
_WARM_UPS, _PROFILED = 4, 6
"""Bars drawn of each kind; the others are like them."""
_ROW_PX, _TEXT_PX = 30, 11
_SPAN = "#64748b"
"""Of the span of the bare steps: seen on their bar and beside it, in both themes."""
_CLIP = 2.5
"""What is so many times longer than the others is cut off: a first step, which then says so, or the span of bare steps."""


def step_chart(
    iterations: Sequence[Iteration],
    bare_s: Spread,
    *,
    theme: Theme,
    scale: float = 1.0,
    brief: bool = False,
    limit_ms: float | None = None,
) -> alt.LayerChart | alt.FacetChart:
    """One bar a step, cut into its parts. ``bare_s``: of the bare steps.

    ``scale``: of rows and type, for a projector. ``brief``: first, bare and median profiled step only. ``limit_ms``: end
    of the axis, to compare two charts. The legend is ``STEP`` of the palette; see ``parts_of``.
    """
    rows, totals = _step_rows(iterations, bare_s, brief)
    limit_ms = limit_ms or step_limit(iterations, bare_s)
    y = alt.Y(
        "step:N",
        sort=[total["step"] for total in totals],
        title=None,
        axis=alt.Axis(labelLimit=260, labelOverlap=False, ticks=False, domain=False),
    )
    bars = _bars(rows, limit_ms, theme, _ROW_PX * scale * 0.62, brief).encode(y=y)
    return alt.layer(bars, *_labels(totals, limit_ms, GRAPH[theme]["ink"], y, _TEXT_PX * scale)).properties(
        height=_ROW_PX * scale * len(totals) + 50, description=_described(totals, rows)
    )


def step_limit(iterations: Sequence[Iteration], bare_s: Spread) -> float:
    """Right end of the axis in ms, without room for labels."""
    totals = _step_rows(iterations, bare_s, False)[1]
    others = [total["total_ms"] for total in totals if not _starts(total["step"])]
    others += [min(total["high_ms"], _CLIP * total["total_ms"]) for total in totals if total["high_ms"]]
    first = max((total["total_ms"] for total in totals if _starts(total["step"])), default=0.0)
    longest = max(others)
    return first if longest < first <= _CLIP * longest else longest


def parts_of(iterations: Sequence[Iteration]) -> list[str]:
    """The parts that the chart draws, for a legend."""
    measured = [name for field, name in PARTS.items() if any(i.parts and getattr(i.parts, field) for i in iterations)]
    return [*measured, BARE]


def _bars(rows: Sequence[Mapping[str, Any]], limit_ms: float, theme: Theme, height_px: float, brief: bool) -> alt.Chart:
    data = pd.DataFrame(rows)
    colours = alt.Scale(domain=list(STEP[theme]), range=list(STEP[theme].values()))
    room = alt.Scale(domain=[0, limit_ms * (1.6 if brief else 1.16)], nice=False)
    return (
        alt.Chart(data)
        .mark_bar(clip=True, height=height_px, stroke=GRAPH[theme]["frame"], strokeWidth=0.5)
        .encode(
            x=alt.X("start_ms:Q", title="time of one step (ms)", scale=room, axis=alt.Axis(tickCount=4 if brief else 10)),
            x2="end_ms:Q",
            color=alt.Color("part:N", scale=colours, legend=None),
            tooltip=[
                alt.Tooltip("step", title="step"), alt.Tooltip("part", title="part"),
                alt.Tooltip("text", title="time"), alt.Tooltip("share", title="share of this step", format=".1%"),
            ],
        )
    )  # fmt: skip


def _labels(
    totals: Sequence[Mapping[str, Any]], limit_ms: float, ink: str, y: alt.Y, size_px: float
) -> list[alt.Chart]:
    """The total at the end of each bar, the span of the bare steps, and a word on a bar that is cut off."""
    ends = pd.DataFrame(totals)
    ends["cut"] = ends["total_ms"] > limit_ms
    ends["label"] = ends["text"].where(~ends["cut"], ends["text"] + "  (cut off)")
    ends["at"] = ends[["total_ms", "high_ms"]].max(axis=1).clip(upper=limit_ms)
    ends["edge"] = limit_ms * 1.15
    base = alt.Chart(ends).encode(y=y)
    span = base.transform_filter("isValid(datum.low_ms)").mark_rule(color=_SPAN, strokeWidth=3, clip=True)
    inside = base.transform_filter("datum.cut").mark_text(
        align="right", dx=-6, color="#ffffff", fontWeight=600, fontSize=size_px
    )
    outside = base.transform_filter("!datum.cut").mark_text(align="left", dx=6, color=ink, fontSize=size_px)
    return [
        span.encode(x="low_ms:Q", x2="high_ms:Q"),
        inside.encode(x="edge:Q", text="label:N"),
        outside.encode(x="at:Q", text="label:N"),
    ]


def _step_rows(
    iterations: Sequence[Iteration], bare_s: Spread, brief: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(one row a part of a step, one row a step)."""
    kinds = {kind: [i for i in iterations if i.kind == kind] for kind in ("first", "warm-up", "profiled")}
    before = {"first step": kinds["first"][0]} if kinds["first"] else {}
    if brief:
        ordered = sorted(kinds["profiled"], key=lambda i: i.total_s)
        after = {"profiled, median": ordered[(len(ordered) - 1) // 2]}
    else:
        before |= {f"warm-up {n}": i for n, i in enumerate(kinds["warm-up"][:_WARM_UPS], 1)}
        after = {f"profiled {n}": i for n, i in enumerate(kinds["profiled"][:_PROFILED], 1)}
    bare = _part(BARE, BARE, 0.0, bare_s.median, bare_s.median)
    rows = [
        *(row for name, i in before.items() for row in _parts(name, i)),
        bare,
        *(row for name, i in after.items() for row in _parts(name, i)),
    ]
    totals = [
        *(_total(name, i.total_s) for name, i in before.items()),
        _total(BARE, bare_s.median, bare_s.min, bare_s.max, spoken=not brief),
        *(_total(name, i.total_s) for name, i in after.items()),
    ]
    return rows, totals


def _parts(step: str, iteration: Iteration) -> list[dict[str, Any]]:
    rows, at = [], 0.0
    for field, name in PARTS.items():
        seconds = getattr(iteration.parts, field)
        if seconds:
            rows.append(_part(step, name, at, seconds, iteration.total_s))
            at += seconds
    return rows


def _part(step: str, part: str, start_s: float, seconds: float, total_s: float) -> dict[str, Any]:
    return {
        "step": step, "part": part, "start_ms": start_s * 1e3, "end_ms": (start_s + seconds) * 1e3,
        "text": seconds_text(seconds), "share": seconds / total_s,
    }  # fmt: skip


def _total(
    step: str, seconds: float, low_s: float | None = None, high_s: float | None = None, *, spoken: bool = False
) -> dict[str, Any]:
    span = f"  ({seconds_text(low_s)} to {seconds_text(high_s)})" if spoken and low_s and high_s else ""
    return {
        "step": step, "total_ms": seconds * 1e3, "text": seconds_text(seconds) + span,
        "low_ms": None if low_s is None else low_s * 1e3, "high_ms": None if high_s is None else high_s * 1e3,
    }  # fmt: skip


def _starts(step: str) -> bool:
    return step.startswith(("first", "warm-up"))


def _described(totals: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> str:
    last = totals[-1]["step"]
    parts = ", ".join(f"{row['part']} {row['text']}" for row in rows if row["step"] == last)
    steps = ", ".join(f"{total['step']}: {total['text']}" for total in totals)
    return f"Time of each step, cut into parts. {steps}. {last}: {parts}."


def ceiling_rows(operators: Operators, ceilings: Ceilings, *, device: bool, most: int = 10) -> list[dict[str, Any]]:
    """What the operators with the largest self time reach: one row an operator and ceiling, in ``share`` of the ceiling."""
    rows: list[dict[str, Any]] = []
    kinds = (
        ("arithmetic", operators.flops, ceilings.flops_per_s, "FLOP/s"),
        ("memory traffic", operators.moved_bytes, ceilings.bytes_per_s, "B/s"),
    )
    for at, name in enumerate(operators.name):
        seconds = operators.device_self_s[at] if device else operators.total_s[at]
        if not seconds or len({row["operator"] for row in rows}) >= most:
            continue
        for ceiling, amounts, best, unit in kinds:
            if work := amounts[at]:
                rate = work / seconds
                rows.append({
                    "operator": name, "ceiling": ceiling, "share": rate / best,
                    "rate": f"{number_text(rate / 1e9)} G{unit}", "time": seconds_text(seconds), "self_s": operators.self_s[at],
                })  # fmt: skip
    return rows


def ceiling_chart(
    rows: Sequence[Mapping[str, Any]], *, theme: Theme, scale: float = 1.0
) -> alt.LayerChart | alt.FacetChart:
    """``rows`` of ``ceiling_rows``: two bars an operator, against the measured ceilings. ``scale`` as above."""
    data = pd.DataFrame(rows)
    colours = {"arithmetic": STEP[theme]["forward"], "memory traffic": STEP[theme]["synchronisation"]}
    order = list(dict.fromkeys(data["operator"]))
    share = alt.X("share:Q", title="share of what this device can do (measured)", axis=alt.Axis(format=".0%"),
                  scale=alt.Scale(domain=[0, max(1.05, max(row["share"] for row in rows) * 1.15)], nice=False))  # fmt: skip
    y = alt.Y(
        "operator:N",
        sort=order,
        title=None,
        axis=alt.Axis(labelLimit=260 * scale, labelOverlap=False, ticks=False, domain=False),
    )
    base = alt.Chart(data).encode(y=y, yOffset=alt.YOffset("ceiling:N", sort=list(colours)))
    bars = base.mark_bar(stroke=GRAPH[theme]["ink"], strokeWidth=0.4).encode(
        x=share,
        color=alt.Color(
            "ceiling:N",
            scale=alt.Scale(domain=list(colours), range=list(colours.values())),
            legend=alt.Legend(title=None, orient="top", symbolType="square", symbolStrokeWidth=0),
        ),
        tooltip=[
            alt.Tooltip("operator"), alt.Tooltip("ceiling", title="against"), alt.Tooltip("rate", title="reached"),
            alt.Tooltip("share", title="share of the ceiling", format=".1%"), alt.Tooltip("time", title="time, all calls"),
        ],
    )  # fmt: skip
    texts = base.mark_text(align="left", dx=4, color=GRAPH[theme]["ink"], fontSize=_TEXT_PX * scale).encode(
        x=share, text="rate:N"
    )
    line = (
        alt.Chart(pd.DataFrame({"share": [1.0]}))
        .mark_rule(color=GRAPH[theme]["fault"], strokeDash=[5, 4])
        .encode(x="share:Q")
    )
    said = ", ".join(f"{row['operator']}: {row['rate']}, {row['share']:.0%} of {row['ceiling']}" for row in rows)
    return alt.layer(bars, texts, line).properties(
        height=44 * scale * len(order) + 60, description=f"Reached against measured ceilings. {said}."
    )
