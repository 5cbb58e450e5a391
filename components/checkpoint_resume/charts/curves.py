"""Two loss curves that lie on each other, the gap between them, and where each lost part first shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import altair as alt
import pandas as pd

from components.kit.palette import GRAPH, MODES, Theme
from lab.records.resume import Resumed, ResumeResult

Drawn: TypeAlias = alt.LayerChart | alt.FacetChart
_AXIS_PX = 48
"""Room for the labels of both vertical axes: their steps stand below each other."""
_SAID = "Training loss of a run that never stopped and of one that was loaded."
STRAIGHT, LOADED = "never stopped", "stopped, saved, loaded"
FLOOR = 1e-9
"""Where a gap of exactly zero is drawn on the logarithmic axis."""
_TRAINING, _EVALUATION, _NOWHERE = "a training loss", "evaluation only", "nowhere at this stop"
_ROW_PX = 27


def curve_charts(result: ResumeResult, theme: Theme) -> tuple[Drawn, Drawn]:
    """Loss over micro-steps, and the gap below on the same axis of steps; a line at the stop."""
    stop, steps = result.stop_after, len(result.before) + len(result.straight)
    rows = [
        *({"step": at, "loss": loss, "run": STRAIGHT} for at, loss in enumerate((*result.before, *result.straight))),
        *({"step": stop + at, "loss": loss, "run": LOADED} for at, loss in enumerate(result.resumed)),
    ]
    colour = alt.Color(
        "run:N", title=None, scale=alt.Scale(domain=[STRAIGHT, LOADED], range=[MODES[theme]["eval"], MODES[theme]["train"]]),
        legend=alt.Legend(orient="top", labelLimit=320),
    )  # fmt: skip
    tips = [
        alt.Tooltip("run:N", title="run"), alt.Tooltip("step:Q", title="micro-step"),
        alt.Tooltip("loss:Q", title="training loss", format=".8g"),
    ]  # fmt: skip
    x, y = _steps(steps, ""), alt.Y("loss:Q", title="training loss", axis=alt.Axis(minExtent=_AXIS_PX))
    whole, loaded = (alt.Chart(pd.DataFrame([r for r in rows if r["run"] == name])) for name in (STRAIGHT, LOADED))
    straight = whole.mark_line(strokeWidth=5, opacity=0.55).encode(x, y, colour)
    resumed = loaded.mark_line(strokeWidth=2, strokeDash=[5, 3]).encode(x, y, colour)
    points = alt.Chart(pd.DataFrame(rows)).mark_circle(size=90, opacity=0).encode(x, y, tooltip=tips)
    upper = alt.layer(straight, resumed, points, *_stop(stop, theme, "stopped here"))
    return upper.properties(height=250, description=_SAID), _gap_chart(result, theme, steps)


def _steps(steps: int, title: str) -> alt.X:
    axis = alt.Axis(tickMinStep=1, format="d")
    return alt.X("step:Q", title=title or None, axis=axis, scale=alt.Scale(domain=[-1, steps], nice=False))


def _stop(stop: int, theme: Theme, word: str) -> list[alt.Chart]:
    data, muted = pd.DataFrame([{"step": stop - 0.5, "word": word}]), GRAPH[theme]["muted"]
    rule = alt.Chart(data).mark_rule(color=muted, strokeDash=[2, 3]).encode(x="step:Q")
    text = alt.Chart(data).mark_text(align="right", dx=-6, baseline="top", fontSize=12, color=muted)
    return [rule, text.encode(x="step:Q", y=alt.value(2), text="word:N")] if word else [rule]


def _gap_chart(result: ResumeResult, theme: Theme, steps: int) -> Drawn:
    stop = result.stop_after
    gaps = [
        {"step": stop + at, "at": max(gap, FLOOR) if math.isfinite(gap) else 1.0, "gap": gap} for at, gap in enumerate(result.gap)
    ]  # fmt: skip
    top = max((row["at"] for row in gaps), default=FLOOR)
    axis = alt.Axis(
        values=[FLOOR, 1e-7, 1e-5, 1e-3, 1e-1, 10.0], minExtent=_AXIS_PX,
        labelExpr=f"datum.value <= {FLOOR} ? '0' : format(datum.value, '.0e')",
    )  # fmt: skip
    x = _steps(steps, "micro-step")
    y = alt.Y("at:Q", title="gap", scale=alt.Scale(type="log", domain=[FLOOR, max(top * 8, 1e-1)]), axis=axis)
    tips = [
        alt.Tooltip("step:Q", title="micro-step"),
        alt.Tooltip("gap:Q", title="difference of the losses", format=".6g"),
    ]
    base, colour, fault = alt.Chart(pd.DataFrame(gaps)), MODES[theme]["train"], GRAPH[theme]["fault"]
    stems = base.mark_rule(color=colour, opacity=0.5).encode(x, y, y2=alt.datum(FLOOR))
    points = base.mark_circle(size=42, color=colour, opacity=1).encode(x, y, tooltip=tips)
    layers: list[Any] = [stems, points, *_stop(stop, theme, "")]
    if result.first_different is not None:
        first = gaps[result.first_different]
        data = alt.Chart(pd.DataFrame([{**first, "word": "first difference"}]))
        left = result.first_different > len(gaps) / 2
        text = data.mark_text(
            align="right" if left else "left", dx=-10 if left else 10, dy=-14, fontSize=12, color=fault
        )
        layers += [data.mark_point(size=190, strokeWidth=2, color=fault).encode(x, y), text.encode(x, y, text="word:N")]
    return alt.layer(*layers).properties(height=150, description="Difference of the two losses, step by step.")


def parts_chart(rows: Sequence[tuple[str, Resumed]], chosen: str, theme: Theme) -> Drawn:
    """Every part left out in turn: the first step whose training loss differs, or that evaluation alone shows it.

    ``rows``: the part in words, and what leaving it out measured.
    """
    table = [_part_row(words, one, one.left_out == chosen) for words, one in rows]
    frame = pd.DataFrame(table)
    order = [row["part"] for row in table]
    y = alt.Y(
        "part:N",
        sort=order,
        title=None,
        axis=alt.Axis(labelLimit=330, labelOverlap=False, labelFontSize=12, ticks=False, domain=False),
    )
    x = alt.X(
        "step:Q",
        title="training steps after loading that are equal in every bit",
        axis=alt.Axis(tickMinStep=1, format="d"),
        scale=alt.Scale(domain=[0, 76], nice=False),
    )
    colour = alt.Color(
        "shows:N", title="shows in", scale=alt.Scale(domain=[_TRAINING, _EVALUATION, _NOWHERE], range=[MODES[theme]["train"], MODES[theme]["eval"], MODES[theme]["off"]]),
        legend=alt.Legend(orient="top", labelLimit=260),
    )  # fmt: skip
    tips = [
        alt.Tooltip("part:N", title="left out"), alt.Tooltip("first:N", title="first different training loss"),
        alt.Tooltip("first gap:N"), alt.Tooltip("mean gap:N"), alt.Tooltip("weights apart:N"),
        alt.Tooltip("evaluation of the model:N"), alt.Tooltip("evaluation of the average:N"),
    ]  # fmt: skip
    base = alt.Chart(frame)
    bars = base.mark_bar(height=9, cornerRadiusEnd=3).encode(x, y, color=colour, x2=alt.datum(0), tooltip=tips)
    ends = base.mark_circle(size=130, opacity=1).encode(x, y, color=colour, tooltip=tips)
    words = base.mark_text(align="left", dx=11, fontSize=12, color=GRAPH[theme]["ink"]).encode(x, y, text="word:N")
    layers: list[Any] = [bars, ends, words]
    if chosen in set(frame["left_out"]):
        here = alt.Chart(frame[frame["left_out"] == chosen])
        layers.insert(
            0,
            here.mark_bar(height=_ROW_PX - 4, color=GRAPH[theme]["frame"], opacity=0.8).encode(
                y=y, x=alt.datum(0), x2=alt.datum(76)
            ),
        )
    return alt.layer(*layers).properties(
        height=_ROW_PX * len(table) + 100, description="Where each lost part of a checkpoint first shows."
    )


def _part_row(words: str, one: Resumed, chosen: bool) -> dict[str, Any]:
    evaluation = one.eval_gap_model or one.eval_gap_average
    never = one.first_different is None
    shows = _EVALUATION if never and evaluation else _NOWHERE if never and not one.weights_apart else _TRAINING
    if never:
        word = f"evaluation {evaluation:+.2g}" if evaluation else "weights differ" if one.weights_apart else "all equal"
    else:
        word = f"{one.first_gap:.2g} apart"
    return {
        "part": words, "left_out": one.left_out, "step": 60 if never else one.first_different, "shows": shows, "word": word,
        "first": "none of 60" if never else f"step {one.first_different}", "first gap": f"{one.first_gap:.6g}",
        "mean gap": f"{one.mean_gap:.4g}", "weights apart": f"{one.weights_apart * 100:.3g} %",
        "evaluation of the model": f"{one.eval_gap_model:+.4g}", "evaluation of the average": f"{one.eval_gap_average:+.4g}",
        "chosen": chosen,
    }  # fmt: skip
