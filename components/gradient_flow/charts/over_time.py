"""The gradient at each time step of the input of recurrent modules, on a log axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import pandas as pd

from components.kit.palette import MEMORY, Theme
from lab.quantities import number_text
from lab.records.gradients import OverTime

_HUES = ("gradients", "parameters", "optimizer state", "inputs", "weight casts", "saved activations")


def over_time_chart(rows: Sequence[OverTime], theme: Theme, *, height: int = 440) -> alt.LayerChart | alt.FacetChart:
    """A line a module. Zeros have no place on a log axis: they stand on its lower edge, hollow."""
    frame = pd.DataFrame(
        [(f"{row.name} ({row.kind})", step, value) for row in rows for step, value in enumerate(row.norms, 1)],
        columns=["module", "step", "value"],
    )
    drawable = frame["value"].map(_drawable)
    values = [value for row in rows for value in row.norms if _drawable(value)]
    low = 10.0 ** math.floor(math.log10(min(values))) if values else 1e-3
    frame["at"] = frame["value"].where(drawable, low)
    frame["shown"] = frame["value"].map(number_text)
    names = list(dict.fromkeys(frame["module"]))
    hues = [MEMORY[theme][hue] for hue in _HUES if hue in MEMORY[theme]]
    x = alt.X("step:Q", title="time step of the input", axis=alt.Axis(tickMinStep=1, format="d"))
    y = alt.Y("at:Q", title="norm of the gradient", scale=alt.Scale(type="log"), axis=alt.Axis(format=".0e"))
    color = alt.Color(
        "module:N", title=None, scale=alt.Scale(domain=names, range=hues), legend=alt.Legend(orient="top")
    )
    tooltip = [
        alt.Tooltip("module:N"),
        alt.Tooltip("step:Q", title="time step"),
        alt.Tooltip("shown:N", title="norm"),
    ]
    line = alt.Chart(frame[drawable]).mark_line(strokeWidth=2.5).encode(x, y, color)
    points = alt.Chart(frame[drawable]).mark_point(size=36, filled=True, opacity=1).encode(x, y, color, tooltip=tooltip)
    zeros = alt.Chart(frame[~drawable]).mark_point(size=50, filled=False).encode(x, y, color, tooltip=tooltip)
    return (line + points + zeros).properties(height=height)


def _drawable(value: float) -> bool:
    return math.isfinite(value) and value > 0
