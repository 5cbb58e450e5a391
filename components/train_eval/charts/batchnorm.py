"""BatchNorm: running statistics batch by batch, the gap between the modes, and what moves the statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, Theme
from components.train_eval.charts.lamps import Drawn, Lamp, lamp_chart
from lab.quantities import number_text
from lab.records.modes_batchnorm import BatchRow, Reach, ServingRow, SizeRow, Treatment

POINTS = 300


def trace_charts(rows: Sequence[BatchRow], channel: int, theme: Theme) -> list[Drawn]:
    """Mean, variance and output spread of one channel, batch by batch; a chart each."""
    data = pd.DataFrame(_channel_rows(rows[:POINTS], channel))
    tracked = rows[0].running_mean is not None
    mean = [("batch_mean", "of the batch"), *([("running_mean", "running")] if tracked else [])]
    variance = [
        ("batch_var_biased", "of the batch, ÷ n: normalises"),
        ("batch_var_unbiased", "of the batch, ÷ (n − 1): stored"),
        *([("running_var", "running")] if tracked else []),
    ]
    output = [("train_std", "train mode"), ("eval_std", "eval mode, same batch")]
    panels = (("mean", mean), ("variance", variance), ("std of the output", output))
    return [_panel(data, theme, title, series, channel) for title, series in panels]


_HUES = {
    "batch_mean": "train",
    "batch_var_biased": "train",
    "batch_var_unbiased": "on",
    "running_mean": "eval",
    "running_var": "eval",
    "train_std": "train",
    "eval_std": "eval",
}


def _channel_rows(rows: Sequence[BatchRow], channel: int) -> list[dict[str, Any]]:
    return [{"batch": row.batch, **{name: _of_channel(getattr(row, name), channel) for name in _HUES}} for row in rows]


def _of_channel(values: tuple[float, ...] | None, channel: int) -> float | None:
    return None if values is None else values[channel]


def _panel(data: pd.DataFrame, theme: Theme, title: str, series: list[tuple[str, str]], channel: int) -> Drawn:
    names = [name for name, _ in series]
    long = data.melt("batch", names, "series", "value").dropna()
    words = dict(series)
    long["series"] = [words[name] for name in long["series"]]
    scale = alt.Scale(domain=list(words.values()), range=[MODES[theme][_HUES[name]] for name in names])
    color = alt.Color(
        "series:N",
        scale=scale,
        sort=None,
        legend=alt.Legend(title=None, orient="top", direction="horizontal", labelLimit=300, symbolType="stroke", symbolStrokeWidth=4),
    )  # fmt: skip
    tips = [alt.Tooltip("batch:Q"), alt.Tooltip("series:N", title=title), alt.Tooltip("value:Q", format=".8g")]
    base = alt.Chart(long).encode(
        x=alt.X(
            "batch:Q",
            title="batches seen",
            scale=alt.Scale(nice=False, padding=8),
            axis=alt.Axis(tickMinStep=1, format="d"),
        ),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
        color=color,
        tooltip=tips,
    )
    stored = [words[name] for name in names if name.startswith("running") or name.endswith("std")]
    lines = base.transform_filter(alt.FieldOneOfPredicate("series", stored)).mark_line(strokeWidth=2.5)
    points = base.mark_point(filled=True, size=32)
    return alt.layer(lines, points).properties(
        height=230, description=f"Batch by batch, channel {channel}: {title}; {', '.join(words.values())}."
    )


def size_chart(rows: Sequence[SizeRow], chosen: int, theme: Theme) -> Drawn:
    """Ratio of the outputs of both modes over the batch size: measured, predicted, and the limit for ε = 0."""
    data = pd.DataFrame([row for row in rows if row.ratio is not None])
    x = alt.X("batch:Q", title="samples in the batch", scale=alt.Scale(type="log", base=2, domain=[1, max(256, max(row.batch for row in rows))]), axis=alt.Axis(values=[1, 2, 4, 8, 16, 32, 64, 128, 256], format="d"))  # fmt: skip
    y_title, scale = "std of eval output ÷ std of train output", alt.Scale(zero=False, nice=True)
    tips = [
        alt.Tooltip("batch", title="samples"),
        alt.Tooltip("values", title="n, values of a channel"),
        alt.Tooltip("ratio", title="measured", format=".12g"),
        alt.Tooltip("predicted", title="√((σ_b² + ε)/(σ_u² + ε))", format=".12g"),
        alt.Tooltip("limit", title="√((n − 1)/n)", format=".12g"),
    ]
    base = alt.Chart(data)
    limit = base.mark_line(strokeDash=[6, 4], color=GRAPH[theme]["ink"]).encode(
        x, alt.Y("limit:Q", title=y_title, scale=scale)
    )
    predicted = base.mark_line(color=MODES[theme]["eval"], strokeWidth=2.5).encode(x, alt.Y("predicted:Q"))
    measured = base.mark_point(filled=True, size=90, color=MODES[theme]["train"], opacity=1).encode(
        x, alt.Y("ratio:Q"), tooltip=tips,
        size=alt.condition(alt.datum.batch == chosen, alt.value(260), alt.value(80)),
    )  # fmt: skip
    layers = [limit, predicted, measured]
    refused = [row for row in rows if row.ratio is None]
    if refused:
        note = alt.Chart(
            pd.DataFrame([{"batch": refused[0].batch, "text": "1: torch refuses, one value has no variance"}])
        )
        layers.append(
            note.mark_text(align="left", dx=6, fontSize=12, color=GRAPH[theme]["fault"]).encode(
                x, y=alt.value(12), text="text:N"
            )
        )
    title = "● measured   — √((σ_b² + ε)/(σ_u² + ε))   - - limit √((n − 1)/n)"
    return alt.layer(*layers).properties(
        height=380, title=alt.Title(title, fontSize=12, fontWeight="normal", anchor="start"),
        description="Ratio of the outputs in eval and train mode against the batch size.",
    )  # fmt: skip


def serving_charts(rows: Sequence[ServingRow], chosen: float, theme: Theme) -> list[Drawn]:
    """How far eval output is from what train mode would give, when serving data has moved; then its mean and spread."""
    data = pd.DataFrame(rows)
    x = alt.X("shift:Q", title="shift of the serving data")
    here = (
        alt.Chart(pd.DataFrame([{"shift": chosen}])).mark_rule(color=GRAPH[theme]["muted"], strokeDash=[2, 3]).encode(x)
    )
    tips = [
        alt.Tooltip("shift"), alt.Tooltip("scale"), alt.Tooltip("gap", title="measured gap", format=".6g"),
        alt.Tooltip("predicted", title="gap from moments", format=".6g"),
        alt.Tooltip("eval_mean", title="mean of eval output", format=".6g"),
        alt.Tooltip("eval_std", title="std of eval output", format=".6g"),
    ]  # fmt: skip
    base = alt.Chart(data)
    line = base.mark_line(color=MODES[theme]["eval"], strokeWidth=2.5).encode(
        x, alt.Y("predicted:Q", title="gap (rms)")
    )
    points = base.mark_point(filled=True, size=80, color=MODES[theme]["train"], opacity=1).encode(
        x, alt.Y("gap:Q"), tooltip=tips
    )
    upper = alt.layer(here, line, points).properties(
        height=290,
        title=alt.Title("● gap between eval and train mode, measured   — from means and variances alone", fontSize=12, fontWeight="normal", anchor="start"),
    )  # fmt: skip
    long = data.melt(["shift", "scale"], ["eval_mean", "eval_std"], "series", "value")
    long["series"] = [name.removeprefix("eval_") for name in long["series"]]
    scale = alt.Scale(domain=["mean", "std"], range=[MODES[theme]["eval"], MODES[theme]["on"]])
    lower = (
        alt.Chart(long)
        .mark_line(strokeWidth=2.5, point=True)
        .encode(
            x, alt.Y("value:Q", title="eval output"),
            alt.Color("series:N", scale=scale, legend=alt.Legend(title=None, orient="top")),
            tooltip=[alt.Tooltip("shift"), alt.Tooltip("series"), alt.Tooltip("value", format=".6g")],
        )
        .properties(height=140)
    )  # fmt: skip
    description = "Distance between eval and train output against the shift of the serving data."
    lower = alt.layer(here, lower).properties(height=230, description="Mean and spread of the eval output by shift.")
    return [upper.properties(description=description), lower]


def treatment_chart(rows: Sequence[Treatment], chosen: str, theme: Theme) -> Drawn:
    """What each treatment moves: affine weight, running statistics, counter, output."""
    lamps = []
    for row in rows:
        gap, counted = row.output_gap, row.batches_counted
        moved = row.mean_moved > 0
        error = row.error
        output = (
            "refused" if error and gap is None else "none" if gap is None else number_text(gap) if gap > 1e-9 else "no"
        )
        for column, on, text, detail in (
            ("weight gets|a gradient", row.weight_gradient, "yes" if row.weight_gradient else "no", "affine weight"),
            ("running mean|moves", moved, number_text(row.mean_moved) if moved else "no", f"by at most {number_text(row.mean_moved)}"),
            ("batches|counted", counted > 0, str(counted), "num_batches_tracked grew by this"),
            ("output differs|from train mode", gap is not None and gap > 1e-9, output, error or "root mean square distance"),
        ):  # fmt: skip
            lamps.append(Lamp(row.name, column, bool(on), text, detail, row.name == chosen))
    return lamp_chart(
        lamps, theme=theme, row_title="done to the layer", description="What each treatment of a BatchNorm layer moves."
    )


def reach_chart(rows: Sequence[Reach], theme: Theme) -> Drawn:
    """For each normalisation, the samples and channels that share one mean and variance with the first element."""
    layers, modes = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("layer", "mode"))
    samples, channels = len(rows[0].shares), len(rows[0].shares[0])
    wide, tall = channels + 1.2, samples + 2.2
    data = pd.DataFrame(
        [
            {
                "layer": row.layer,
                "mode": f"{row.mode} mode",
                "sample": sample,
                "channel": channel,
                "share": share,
                "on": share > 0,
                "values": row.values,
                "left": layers.index(row.layer) * wide + channel,
                "top": modes.index(row.mode) * tall + sample,
            }
            for row in rows
            for sample, shares in enumerate(row.shares)
            for channel, share in enumerate(shares)
        ]
    )
    data["right"], data["bottom"] = data["left"] + 0.94, data["top"] + 0.94
    legend = alt.Legend(
        title=None,
        orient="bottom",
        labelLimit=420,
        labelExpr="datum.value ? 'shares mean and variance with sample 0, channel 0' : 'does not'",
    )
    scale = alt.Scale(domain=[True, False], range=[MODES[theme]["on"], MODES[theme]["off"]])
    tips = [
        alt.Tooltip("layer"),
        alt.Tooltip("mode"),
        alt.Tooltip("sample"),
        alt.Tooltip("channel"),
        alt.Tooltip("share", title="share of positions", format=".0%"),
        alt.Tooltip("values", title="n in all"),
    ]
    x = alt.X("left:Q", axis=None, scale=alt.Scale(domain=[-0.2, wide * len(layers)], nice=False))
    y = alt.Y("top:Q", axis=None, scale=alt.Scale(domain=[tall * len(modes) - 1, -1.9], nice=False))
    cells = (
        alt.Chart(data)
        .mark_rect(cornerRadius=2)
        .encode(x, y, x2="right", y2="bottom", color=alt.Color("on:N", scale=scale, legend=legend), tooltip=tips)
    )
    words = pd.DataFrame(
        [
            {"left": i * wide, "top": j * tall - 0.7, "text": f"{layer}, {mode}"}
            for i, layer in enumerate(layers)
            for j, mode in enumerate(modes)
        ]
    )
    heads = alt.Chart(words).mark_text(align="left", fontSize=12, fontWeight="bold", color=GRAPH[theme]["ink"])
    title = "across: channels C   down: samples N   height and width share one cell"
    return alt.layer(cells, heads.encode(x, y, text="text:N")).properties(
        height=400,
        title=alt.Title(title, fontSize=12, fontWeight="normal", anchor="start"),
        description="Which samples and channels share one mean and variance, by layer and mode.",
    )
