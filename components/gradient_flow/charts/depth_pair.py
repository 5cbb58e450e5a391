"""Two results over depth on one axis: A dashed, B drawn through, and the difference between them as a band."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import pandas as pd

from components.gradient_flow.charts.depth import Domain, color_of, drawable, layer_axis, log_y, values_of, with_limits
from components.kit.palette import Theme
from lab.quantities import number_text
from lab.records.gradients import Layer


def pair_chart(
    a: Sequence[Layer],
    b: Sequence[Layer],
    quantities: Sequence[str],
    statistic: str,
    theme: Theme,
    domain: Domain,
    *,
    height: int = 420,
) -> alt.LayerChart | alt.FacetChart:
    """Both results by the number of the layer. Zeros and values that are not finite have no place on a log axis: not drawn."""
    rows = pd.concat([_rows(layers, name, quantities, statistic) for name, layers in (("A", a), ("B", b))])
    band = _differences(rows)
    longer = max(a, b, key=len)
    x, y, color = layer_axis(longer), log_y(domain, statistic, quantities), color_of(quantities, theme, 3)
    dashes = alt.StrokeDash(
        "side:N",
        scale=alt.Scale(domain=["A", "B"], range=[[7, 5], [1, 0]]),
        legend=alt.Legend(title=None, orient="top", symbolType="stroke", symbolSize=400, symbolStrokeWidth=3),
    )
    tooltip = [
        alt.Tooltip("layer:N"),
        alt.Tooltip("series:N", title="quantity"),
        alt.Tooltip("a:N", title="A"),
        alt.Tooltip("b:N", title="B"),
        alt.Tooltip("ratio:N", title="B ÷ A"),
    ]
    area = alt.Chart(band).mark_area(opacity=0.16).encode(x, alt.Y("low:Q"), color=color, y2="high:Q", tooltip=tooltip)
    line = alt.Chart(rows[rows["inner"]]).mark_line(strokeWidth=2.5).encode(x, y, color, dashes)
    point = (
        alt.Chart(rows)
        .mark_point(size=45, filled=True, opacity=1)
        .encode(
            x,
            y,
            color,
            tooltip=[*tooltip[:2], alt.Tooltip("side:N", title=" "), alt.Tooltip("shown:N", title=statistic)],
        )
    )
    described = f"{statistic} over depth of A and B on one log axis: {'; '.join(told(a, b, q, statistic)[2] for q in quantities)}."
    return with_limits(alt.layer(area, line, point), domain, theme).properties(height=height, description=described)


def told(a: Sequence[Layer], b: Sequence[Layer], quantity: str, statistic: str) -> tuple[str, str, str]:
    """Where the two differ most in this quantity: name of the layer, both values, their ratio in words."""
    found = [{layer: value for _, layer, _, value in values_of(layers, [quantity], statistic)} for layers in (a, b)]
    both = [name for name in found[0] if name in found[1] and all(drawable(side[name]) for side in found)]
    if not both:
        return quantity, "–", "no layer in which both are above zero"
    worst = max(both, key=lambda name: abs(math.log10(found[1][name] / found[0][name])))
    old, new = found[0][worst], found[1][worst]
    return f"{quantity}, {worst}", f"{number_text(old)} → {number_text(new)}", f"B is {number_text(new / old)} × A"


def _rows(layers: Sequence[Layer], side: str, quantities: Sequence[str], statistic: str) -> pd.DataFrame:
    inner = {i for i, layer in enumerate(layers, 1) if layer.inner}
    return pd.DataFrame(
        [
            (place, layer, series, value, number_text(value), side, place in inner)
            for place, layer, series, value in values_of(layers, quantities, statistic)
            if drawable(value)
        ],
        columns=["position", "layer", "series", "at", "shown", "side", "inner"],
    )


def _differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Where A and B both have an inner layer at this place: the space between them."""
    a, b = (rows[(rows["side"] == side) & rows["inner"]] for side in "AB")
    both = a.merge(b, on=["position", "series"], suffixes=("_a", "_b"))
    return pd.DataFrame(
        {
            "position": both["position"],
            "series": both["series"],
            "layer": both["layer_b"],
            "low": both[["at_a", "at_b"]].min(axis=1),
            "high": both[["at_a", "at_b"]].max(axis=1),
            "a": both["shown_a"],
            "b": both["shown_b"],
            "ratio": [number_text(ratio) for ratio in both["at_b"] / both["at_a"]],
        }
    )
