"""Waits by line, copies by kind and size, what ran when on two streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, Theme
from lab.quantities import bytes_text
from lab.records.transfers import Bandwidth, Lanes, Wait

Drawn: TypeAlias = alt.LayerChart | alt.FacetChart
_LOOP, _ONCE = "in a loop", "outside of loops"


def waits_chart(waits: Sequence[Wait], code: str, theme: Theme) -> Drawn:
    """A bar for each line and source: how often the host needs a value there."""
    lines = code.split("\n")
    table = [
        {
            "line": f"{w.line}  {lines[w.line - 1].strip()[:46]}{chr(0x200B) * at}" if w.line <= len(lines) else f"{w.line}{chr(0x200B) * at}", "source": w.source, "times": w.times,
            "kind": _LOOP if w.in_loop else _ONCE, "word": f"{w.times:,} × {w.source}", "seconds": "not measured here" if w.seconds is None else f"{w.seconds * 1e3:.3f} ms",
        }
        for at, w in enumerate(waits[:30])
    ]  # fmt: skip
    order = list(dict.fromkeys(row["line"] for row in table))
    most = max(w.times for w in waits)
    base = alt.Chart(pd.DataFrame(table)).encode(
        y=alt.Y("line:N", sort=order, title=None, axis=alt.Axis(labelLimit=420, labelFont="monospace", labelFontSize=12, labelOverlap=False, ticks=False)),
        x=alt.X("times:Q", title="times that the host needs a value", axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(domain=[0, most * 1.9])),
        tooltip=[alt.Tooltip("line:N"), alt.Tooltip("source:N"), alt.Tooltip("times:Q", format=","), alt.Tooltip("kind:N", title=" "), alt.Tooltip("seconds:N", title="in all")],
    )  # fmt: skip
    kinds = [kind for kind in (_LOOP, _ONCE) if any(row["kind"] == kind for row in table)]
    hues = {_LOOP: MODES[theme]["train"], _ONCE: MODES[theme]["on"]}
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=kinds, range=[hues[k] for k in kinds]),
        legend=alt.Legend(orient="top"),
    )
    bars = base.mark_bar(cornerRadiusEnd=3).encode(color=colour)
    words = base.mark_text(align="left", dx=6, fontSize=12, color=GRAPH[theme]["ink"]).encode(text="word:N")
    return alt.layer(bars, words).properties(
        height=38 * len(order) + 110, description="Lines at which the host waits for a value."
    )


def copies_chart(copies: Bandwidth, theme: Theme) -> Drawn:
    """Bytes a second by size, a line a kind of copy."""
    table = [
        {"kind": kind, "bytes": size, "rate": size / seconds / 1e9, "told": bytes_text(size), "us": seconds * 1e6}
        for kind, size, seconds in zip(copies.kind, copies.bytes, copies.seconds, strict=True)
    ]
    kinds = list(dict.fromkeys(copies.kind))
    hues = [
        MODES[theme]["on"],
        MODES[theme]["train"],
        MODES[theme]["eval"],
        GRAPH[theme]["muted"],
        GRAPH[theme]["fault"],
    ]
    base = alt.Chart(pd.DataFrame(table)).encode(
        x=alt.X("bytes:Q", title="bytes", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=sorted(set(copies.bytes)), labelExpr="datum.value >= 1048576 ? round(datum.value / 1048576) + ' MiB' : round(datum.value / 1024) + ' KiB'")),
        y=alt.Y("rate:Q", title="GB a second", scale=alt.Scale(type="log"), axis=alt.Axis(format="~g")),
        color=alt.Color("kind:N", title=None, sort=kinds, scale=alt.Scale(domain=kinds, range=hues[: len(kinds)]), legend=alt.Legend(orient="top", labelLimit=220)),
        tooltip=[alt.Tooltip("kind:N"), alt.Tooltip("told:N", title="size"), alt.Tooltip("rate:Q", title="GB a second", format=".4g"), alt.Tooltip("us:Q", title="µs", format=".4g")],
    )  # fmt: skip
    return alt.layer(base.mark_line(strokeWidth=2.5), base.mark_circle(size=90, opacity=1)).properties(
        height=380, description="Rates of copies by size."
    )


def lanes_chart(lanes: Lanes, theme: Theme) -> Drawn:
    """Copies and kernels of each chunk on their streams."""
    columns = zip(lanes.lane, lanes.name, lanes.start_s, lanes.end_s, strict=True)
    table = [{"lane": lane, "name": name, "start": start * 1e3, "end": end * 1e3} for lane, name, start, end in columns]
    base = alt.Chart(pd.DataFrame(table)).encode(
        x=alt.X("start:Q", title="milliseconds"), x2="end:Q", y=alt.Y("lane:N", sort=["copy", "compute"], title=None, axis=alt.Axis(labelFontSize=13)),
        tooltip=[alt.Tooltip("lane:N"), alt.Tooltip("name:N"), alt.Tooltip("start:Q", format=".4f"), alt.Tooltip("end:Q", format=".4f")],
    )  # fmt: skip
    colour = alt.Color(
        "lane:N",
        legend=None,
        scale=alt.Scale(domain=["copy", "compute"], range=[MODES[theme]["train"], MODES[theme]["eval"]]),
    )
    return alt.layer(
        base.mark_bar(height=34, stroke=GRAPH[theme]["ink"], strokeWidth=0.5).encode(color=colour)
    ).properties(height=190, description="Copies beside kernels.")
