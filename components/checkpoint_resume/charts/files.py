"""Bytes of a checkpoint by part, optimizer state by position, and what a program did to its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import altair as alt
import pandas as pd

from components.checkpoint_resume.charts.curves import Drawn
from components.kit.palette import GRAPH, MODES, Theme
from lab.quantities import bytes_text
from lab.records.resume import Event, PartOfFile, Position, StateLoss

_ROW_PX = 28
_LANES = {
    "save": "files written", "load": "files read", "model": "models", "optimizer": "optimizers",
    "scheduler": "schedules", "scaler": "scalers", "generator": "generators",
}  # fmt: skip
_LOSS, _EVENT = "state is lost here", "as it should be"


def bytes_chart(parts: Sequence[PartOfFile], words: Callable[[str], str], theme: Theme) -> Drawn:
    """A bar a part: its tensors, then what the container of its file takes."""
    rows = [
        {"part": words(p.name), "kind": kind, "bytes": size, "told": bytes_text(size), "whole": bytes_text(p.bytes)}
        for p in sorted(parts, key=lambda p: -p.bytes)
        for kind, size in (("tensors", p.tensor_bytes), ("the rest of its file", max(p.bytes - p.tensor_bytes, 0)))
    ]
    order = list(dict.fromkeys(row["part"] for row in rows))
    y = alt.Y("part:N", sort=order, title=None, axis=alt.Axis(labelLimit=330, labelOverlap=False))
    scale = alt.Scale(domain=["tensors", "the rest of its file"], range=[MODES[theme]["eval"], MODES[theme]["on"]])
    bars = (
        alt.Chart(pd.DataFrame(rows))
        .mark_bar()
        .encode(
            x=alt.X("sum(bytes):Q", title="bytes of a file that holds this part alone", axis=alt.Axis(format="~s")),
            y=y,
            color=alt.Color("kind:N", title=None, scale=scale, sort=None, legend=alt.Legend(orient="top", labelLimit=260)),
            order=alt.Order("kind:N", sort="descending"),
            tooltip=[alt.Tooltip("part:N", title="part"), alt.Tooltip("kind:N", title=" "), alt.Tooltip("told:N", title="size")],
        )
    )  # fmt: skip
    totals = pd.DataFrame([{"part": words(p.name), "bytes": p.bytes, "told": bytes_text(p.bytes)} for p in parts])
    text = (
        alt.Chart(totals)
        .mark_text(align="left", dx=5, fontSize=12, color=GRAPH[theme]["ink"])
        .encode(x="bytes:Q", y=y, text="told:N")
    )
    return alt.layer(bars, text).properties(
        height=_ROW_PX * len(parts) + 90, description="Bytes of a checkpoint by part."
    )


def positions_chart(positions: Sequence[Position], theme: Theme) -> Drawn:
    """A line from the parameter whose state was saved to the one that has it now; level where nothing moved."""
    names = [p.saved_for for p in positions]
    rows = [
        {
            "position": p.position,
            "side": side,
            "name": name,
            "kind": _kind(p),
            "told": f"{p.saved_for} → {p.loaded_into}",
        }
        for p in positions
        for side, name in (("saved for", p.saved_for), ("steers now", p.loaded_into))
    ]
    colour = alt.Color(
        "kind:N", title=None, legend=alt.Legend(orient="top", labelLimit=330),
        scale=alt.Scale(domain=["the same", "another, equal shape", "another shape"], range=[MODES[theme]["on"], MODES[theme]["train"], GRAPH[theme]["fault"]]),
    )  # fmt: skip
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=alt.X("side:N", sort=None, title=None, axis=alt.Axis(labelAngle=0, orient="top", labelFontSize=13, domain=False, ticks=False), scale=alt.Scale(padding=0.3)),
        y=alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelFontSize=12, domain=False, ticks=False, labelOverlap=False)),
        color=colour, detail="position:N",
        tooltip=[alt.Tooltip("position:Q", title="key in the state dict"), alt.Tooltip("told:N", title="parameter"), alt.Tooltip("kind:N", title=" ")],
    )  # fmt: skip
    return alt.layer(base.mark_line(strokeWidth=3), base.mark_circle(size=110, opacity=1)).properties(
        height=_ROW_PX * len(names) + 80, description="Optimizer state by position: whose it was, whose it is."
    )


def _kind(one: Position) -> str:
    if one.saved_for == one.loaded_into:
        return "the same"
    return "another, equal shape" if one.saved_shape == one.shape else "another shape"


def events_chart(events: Sequence[Event], losses: Sequence[StateLoss], theme: Theme) -> Drawn:
    """What the program did to state, in order, a lane for each kind of object; lines where state was lost are marked."""
    lost = {loss.line for loss in losses}
    rows = [
        {"order": at, "lane": _LANES[e.kind], "line": f"line {e.line}", "what": e.text, "kind": _LOSS if e.line in lost else _EVENT}
        for at, e in enumerate(events, 1)
    ]  # fmt: skip
    lanes = [lane for lane in _LANES.values() if any(row["lane"] == lane for row in rows)]
    scale = alt.Scale(domain=[_EVENT, _LOSS], range=[MODES[theme]["on"], GRAPH[theme]["fault"]])
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=alt.X("order:Q", title="in the order of the program", axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(domain=[0.5, len(rows) + 0.8], nice=False)),
        y=alt.Y("lane:N", sort=lanes, title=None, axis=alt.Axis(labelFontSize=13, grid=True, labelOverlap=False)),
        tooltip=[alt.Tooltip("line:N", title=" "), alt.Tooltip("what:N", title="what")],
    )  # fmt: skip
    points = base.mark_circle(size=170, opacity=1).encode(
        color=alt.Color("kind:N", title=None, scale=scale, legend=alt.Legend(orient="top", labelLimit=260))
    )
    text = base.mark_text(dy=-14, fontSize=12, color=GRAPH[theme]["ink"]).encode(text="line:N")
    layers = [points, text] if len(rows) <= 24 else [points]
    return alt.layer(*layers).properties(height=46 * len(lanes) + 110, description="What the program did to its state.")
