"""Three rulers over the operations."""

from __future__ import annotations

import altair as alt
import pandas as pd

from components.kit.palette import Theme
from components.memory_timeline.charts.memory import line_hues, unit_of
from lab.quantities import bytes_text
from lab.records.memory import AllocatorModel

_NAMES = ("reserved", "allocated", "requested")
_DASHES = [[1, 0], [8, 3], [2, 2]]


def rulers_chart(model: AllocatorModel, theme: Theme) -> alt.Chart:
    """Requested, allocated and reserved bytes, one line each."""
    scale, unit = unit_of(max(model.reserved))
    rows = [
        {"ruler": name, "operation": index, "size": size / scale, "exact": bytes_text(size)}
        for name in _NAMES
        for index, size in zip(model.index, getattr(model, name), strict=True)
    ]
    names, hues = list(_NAMES), line_hues(theme)[:3]
    legend = alt.Legend(title=None, orient="top", direction="horizontal", symbolStrokeWidth=3)
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X(
                "operation:Q", title="operation", axis=alt.Axis(format="d"), scale=alt.Scale(domainMin=0, nice=False)
            ),
            y=alt.Y("size:Q", title=f"bytes ({unit})"),
            color=alt.Color("ruler:N", sort=names, scale=alt.Scale(domain=names, range=hues), legend=legend),
            strokeDash=alt.StrokeDash(
                "ruler:N", sort=names, scale=alt.Scale(domain=names, range=_DASHES), legend=legend
            ),
            tooltip=[alt.Tooltip("ruler"), alt.Tooltip("operation", format=","), alt.Tooltip("exact", title="bytes")],
        )
        .properties(
            height=260,
            description=f"Reserved up to {bytes_text(max(model.reserved))}, allocated up to {bytes_text(max(model.allocated))}, "
            f"requested up to {bytes_text(max(model.requested))}: a model of CUDA's allocator.",
        )
    )
