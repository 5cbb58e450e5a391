"""Dropout: what was dropped, how the averages settle, and the spread of MC dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, SIGN, Theme
from components.train_eval.charts.lamps import Drawn, Lamp, lamp_chart
from lab.quantities import number_text
from lab.records.modes_dropout import DropoutReading, Grid, Listener, McReading

PANELS = (
    ("first", "train 1"),
    ("second", "train 2"),
    ("evaluated", "eval"),
)
GAP = 0.8
"""Columns between two panels."""
CELL_PX = 22
WORDS_UP_TO = 12
"""Columns of a panel up to which each cell shows its number."""


def mask_chart(reading: DropoutReading, theme: Theme) -> Drawn:
    """The same corner of the output in two train passes and in eval mode; dropped cells carry a cross."""
    grid = reading.grid
    rows, columns = len(grid.inputs), len(grid.inputs[0])
    data, stride = pd.DataFrame(_cells(grid)), columns + GAP
    data["strong"] = data["value"].abs() > 0.6 * data["value"].abs().max()
    scale = _sign_scale(data["value"].tolist(), theme)
    values = [panel * stride + i for panel in range(len(PANELS)) for i in _ticks(columns)]
    axis = alt.Axis(
        values=[v + 0.5 for v in values],
        labelExpr=f"floor(datum.value - {stride} * floor(datum.value / {stride}) + 0.01)",
        grid=False,
        ticks=False,
        domain=False,
    )
    x = alt.X(
        "left:Q", title=_column_title(reading), axis=axis, scale=alt.Scale(domain=[0, 3 * stride - GAP], nice=False)
    )
    y = alt.Y(
        "top:Q",
        title="sample" if reading.unit != "plane" else "sample and image row",
        axis=alt.Axis(grid=False, ticks=False, domain=False, tickMinStep=1, format="d"),
        scale=alt.Scale(domain=[rows, -1.5], nice=False),
    )
    tips = [
        alt.Tooltip("panel", title=" "),
        alt.Tooltip("row", title="row"),
        alt.Tooltip("column", title="column"),
        alt.Tooltip("input", title="input", format=".6g"),
        alt.Tooltip("value", title="output", format=".6g"),
        alt.Tooltip("fate", title="fate"),
    ]
    base = alt.Chart(data)
    cells = base.mark_rect(strokeWidth=1, stroke=GRAPH[theme]["frame"]).encode(
        x, y, x2="right", y2="bottom", tooltip=tips,
        color=alt.Color("value:Q", scale=scale, legend=alt.Legend(title="output", orient="right", gradientLength=160)),
    )  # fmt: skip
    marks = base.mark_text(fontSize=11).encode(
        x=alt.X("middle:Q"), y=alt.Y("centre:Q"), text="word:N", tooltip=tips,
        color=alt.condition("datum.strong", alt.value(_strong_ink(theme)), alt.value(GRAPH[theme]["ink"])),
    )  # fmt: skip
    titles = alt.Chart(_titles(stride)).mark_text(
        align="left", fontSize=13, fontWeight="bold", color=GRAPH[theme]["ink"]
    )
    heads = titles.encode(x="left:Q", y=alt.value(8), text="title:N")
    shown = f"{rows} of {grid.rows_of} rows and {columns} of {grid.columns_of} columns"
    whole = rows == grid.rows_of and columns == grid.columns_of
    return alt.layer(cells, marks, heads).properties(
        height=CELL_PX * rows + 110,
        title=alt.Title("× dropped   two passes in train mode, one after eval()" + ("" if whole else f"  ·  shown: {shown}"), fontSize=12, fontWeight="normal", anchor="start"),
        description="Output of the layer in two passes in train mode and in eval mode, a cell an element; dropped cells have a cross.",
    )  # fmt: skip


def _sign_scale(values: list[float], theme: Theme) -> alt.Scale:
    """Zero in the middle; only the ends that occur."""
    top = max(1e-9, *map(abs, values))
    ends = {"negative": -top, "zero": 0.0, "positive": top}
    if min(values) >= 0:
        del ends["negative"]
    return alt.Scale(domain=list(ends.values()), range=[SIGN[theme][end] for end in ends], interpolate="rgb")


def _cells(grid: Grid) -> list[dict[str, Any]]:
    columns = len(grid.inputs[0])
    words = columns <= WORDS_UP_TO
    found = []
    for number, (name, title) in enumerate(PANELS):
        start = number * (columns + GAP)
        for row, values in enumerate(getattr(grid, name)):
            for column, value in enumerate(values):
                dropped = getattr(grid, f"{name}_dropped")[row][column]
                found.append(
                    {
                        "panel": title,
                        "row": row,
                        "column": column,
                        "left": start + column,
                        "right": start + column + 1,
                        "middle": start + column + 0.5,
                        "top": row,
                        "bottom": row + 1,
                        "centre": row + 0.5,
                        "input": grid.inputs[row][column],
                        "value": value,
                        "dropped": dropped,
                        "fate": "dropped" if dropped else "kept",
                        "word": "×" if dropped else f"{value:.2g}".replace("-", "−") if words else "",
                    }
                )
    return found


def _column_title(reading: DropoutReading) -> str:
    return {"element": "channel", "row": "channel and position", "plane": "channel and image column"}[reading.unit]


def _ticks(columns: int) -> range:
    return range(0, columns, max(1, columns // 8))


def _titles(stride: float) -> pd.DataFrame:
    return pd.DataFrame([{"left": i * stride, "title": title} for i, (_, title) in enumerate(PANELS)])


def _strong_ink(theme: Theme) -> str:
    """Readable on the ends of the scale."""
    return "#ffffff" if theme == "light" else GRAPH["light"]["ink"]


def convergence_charts(reading: DropoutReading, p: float, theme: Theme) -> list[Drawn]:
    """Share dropped, mean and variance after 1, 2, ... passes, with what the closed form says; a chart each."""
    data = pd.DataFrame(reading.convergence)
    data["variance_predicted"] = reading.predicted.variance
    data["mean_predicted"] = reading.predicted.mean
    data["p"] = p
    level = f"{reading.level:.1%} interval"
    share = "share dropped"
    return [
        _panel(data, theme, "dropped_fraction", share, "p", ("dropped_low", "dropped_high"), level),
        _panel(data, theme, "mean", "mean of outputs", "mean_predicted", ("mean_low", "mean_high"), level),
        _panel(data, theme, "variance", "variance of outputs", "variance_predicted", None, ""),
    ]


def _panel(
    data: pd.DataFrame, theme: Theme, name: str, title: str, predicted: str, band: tuple[str, str] | None, level: str
) -> Drawn:
    x = alt.X(
        "passes:Q",
        title="passes",
        scale=alt.Scale(type="log", domain=[1, max(2, max(data["passes"].tolist()))], nice=False),
        axis=alt.Axis(tickCount=5, format="d"),
    )
    tips = [alt.Tooltip("passes"), alt.Tooltip(name, title="measured", format=".6g"), alt.Tooltip(predicted, title="predicted", format=".6g")]  # fmt: skip
    scale = alt.Scale(zero=False)
    layers = []
    if band:
        tips += [alt.Tooltip(end, title=f"{level}, {side}", format=".6g") for end, side in zip(band, ("low", "high"), strict=True)]  # fmt: skip
        area = alt.Chart(data).mark_area(opacity=0.35, color=MODES[theme]["on"])
        layers.append(area.encode(x, alt.Y(f"{band[0]}:Q", title=title, scale=scale), alt.Y2(band[1])))
    rule = alt.Chart(data).mark_line(strokeDash=[6, 4], color=GRAPH[theme]["ink"], strokeWidth=1.5)
    line = alt.Chart(data).mark_line(color=MODES[theme]["train"], strokeWidth=2.5, point={"size": 28})
    layers.append(rule.encode(x, alt.Y(f"{predicted}:Q", title=title, scale=scale), tooltip=tips))
    layers.append(line.encode(x, alt.Y(f"{name}:Q", title=title, scale=scale), tooltip=tips))
    legend = "measured ●   predicted - -" + (f"   shaded: {level}" if band else "")
    return alt.layer(*layers).properties(
        height=230,
        title=alt.Title(legend, fontSize=11, fontWeight="normal", anchor="start"),
        description=f"{title} against the number of passes, measured and predicted.",
    )


def mc_chart(reading: McReading, theme: Theme) -> Drawn:
    """Mean of the passes with two standard deviations, measured and predicted, and the output in eval mode."""
    data = pd.DataFrame(reading.samples)
    for sign, side in ((-1, "low"), (1, "high")):
        data[side] = data["mean"] + sign * 2 * data["std"]
        data[f"predicted_{side}"] = data["eval_output"] + sign * 2 * data["predicted_std"]
    x = alt.X("position:Q", title="input x")
    y_title = "output of the network"
    tips = [alt.Tooltip(n, title=t, format=".5g") for n, t in (
        ("position", "input"), ("eval_output", "after eval()"), ("mean", "mean of passes"), ("std", "std over passes"),
        ("predicted_std", "std, closed form"))]  # fmt: skip
    base = alt.Chart(data)
    band = base.mark_area(opacity=0.35, color=MODES[theme]["train"]).encode(
        x, alt.Y("low:Q", title=y_title), alt.Y2("high"), tooltip=tips
    )
    edges = [
        base.mark_line(strokeDash=[6, 4], color=GRAPH[theme]["ink"]).encode(x, alt.Y(f"predicted_{side}:Q", title=y_title), tooltip=tips)
        for side in ("low", "high")
    ]  # fmt: skip
    mean = base.mark_line(color=MODES[theme]["train"], strokeWidth=2.5).encode(x, alt.Y("mean:Q"), tooltip=tips)
    one = base.mark_line(color=MODES[theme]["eval"], strokeWidth=2.5).encode(x, alt.Y("eval_output:Q"), tooltip=tips)
    title = "orange: mean of the passes ± 2 std   - - ± 2 std by the closed form   blue: one pass after eval()"
    return alt.layer(band, *edges, one, mean).properties(
        height=380, title=alt.Title(title, fontSize=12, fontWeight="normal", anchor="start"),
        description="Spread of a small network's output over passes with dropout on, against its input.",
    )  # fmt: skip


def listener_chart(rows: Sequence[Listener], theme: Theme) -> Drawn:
    """Which layers and functions change under eval(), stay random, or need the batch."""
    lamps = []
    for row in rows:
        for column, on, number in (
            ("random in|train mode", row.train_spread > 0, row.train_spread),
            ("still random|after eval()", row.eval_spread > 0, row.eval_spread),
            ("output changes|under eval()", row.mode_gap > 0, row.mode_gap),
            ("needs the batch|after eval()", row.needs_the_batch, None),
        ):
            detail = "yes" if on else "no"
            if number is not None:
                detail = f"largest distance of two outputs {number_text(number)}"
            lamps.append(Lamp(row.name, column, bool(on), "yes" if on else "no", detail))
    return lamp_chart(
        lamps,
        theme=theme,
        row_title="layer",
        description="Layers and functions against what they do in train and in eval mode.",
    )
