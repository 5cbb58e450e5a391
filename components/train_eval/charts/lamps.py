"""A matrix of lamps: rows and columns that are either on or off, with a word or a number in each cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, Theme

ROW_PX = 30
Drawn: TypeAlias = alt.LayerChart | alt.FacetChart
"""What ``properties`` returns."""


class Lamp(NamedTuple):
    """One cell."""

    row: str
    column: str
    on: bool
    text: str
    """What stands in the cell: "yes", "128 B"."""
    detail: str
    """What the tooltip says."""
    marked: bool = False
    """Framed: the one that the controls point at."""


def lamp_chart(lamps: Iterable[Lamp], *, theme: Theme, row_title: str, description: str) -> Drawn:
    """One rectangle a lamp, in the order given. ``description``: the alt text."""
    data = pd.DataFrame(lamps, columns=list(Lamp._fields))
    rows, columns = _order(data["row"]), _order(data["column"])
    tips = [
        alt.Tooltip("row", title=row_title),
        alt.Tooltip("column", title=" "),
        alt.Tooltip("detail", title="measured"),
    ]
    base = alt.Chart(data).encode(
        x=alt.X("column:N", sort=columns, title=None, axis=_column_axis()),
        y=alt.Y(
            "row:N", sort=rows, title=None, axis=alt.Axis(labelLimit=260, labelOverlap=False, ticks=False, domain=False)
        ),
        tooltip=tips,
    )
    colours, ink = MODES[theme], GRAPH[theme]["ink"]
    cells = base.mark_rect(cornerRadius=4, strokeWidth=2).encode(
        color=_on_off(colours),
        stroke=alt.condition("datum.marked", alt.value(ink), alt.value("transparent")),
    )
    dark_ink = GRAPH["light"]["ink"]
    words = base.mark_text(fontSize=12).encode(
        text="text:N", color=alt.condition("datum.on", alt.value(dark_ink), alt.value(GRAPH[theme]["muted"]))
    )
    return alt.layer(cells, words).properties(height=ROW_PX * len(rows) + 90, description=description)


def _on_off(colours: dict[str, str]) -> alt.Color:
    scale = alt.Scale(domain=[True, False], range=[colours["on"], colours["off"]])
    legend = alt.Legend(title=None, orient="bottom", labelExpr="datum.value ? 'happens' : 'does not happen'")
    return alt.Color("on:N", scale=scale, legend=legend)


def _column_axis() -> alt.Axis:
    return alt.Axis(
        orient="top", labelAngle=0, labelLimit=160, ticks=False, domain=False, labelExpr="split(datum.label, '|')"
    )


def _order(values: Any) -> Sequence[str]:
    return list(dict.fromkeys(values))
