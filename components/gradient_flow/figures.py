"""The figures of the page on gradient flow: headline numbers, the view that was picked, the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import streamlit as st

from components.gradient_flow.charts import clipping, depth, depth_pair, over_time
from components.gradient_flow.training_map import KEYS, training_map
from components.kit.charts import draw_chart, theme
from components.kit.headline import headline
from lab.quantities import number_text, seconds_text
from lab.records.gradients import GradientResult

__all__ = ["KEYS", "draw", "draw_pair", "pick"]


class Picked(NamedTuple):
    """What the visitor wants to see."""

    view: str
    quantities: tuple[str, ...] = ()
    statistic: str = "norm"


VIEWS = ("Depth", "Training", "Clipping", "Shares", "Over time")
LOOKS = {"view": VIEWS, "stat": tuple(depth.STATISTICS)}
"""What a link carries beside the settings."""
HEIGHT_PX = 440


def pick(key: str, results: Sequence[GradientResult]) -> Picked:
    """The view, of which only one is drawn; for the view over depth also what is drawn."""
    clips = any(result.clipping.kind != "none" for result in results)
    with st.container(horizontal=True, vertical_alignment="center", key=f"{key}-pick"):
        recurrent = any(result.over_time for result in results)
        left_out = {*(() if clips else ("Clipping",)), *(() if recurrent else ("Over time",))}
        views = [name for name in VIEWS if name not in left_out]
        view = st.segmented_control(
            "View", views, default="Depth", required=True, key=f"{key}-view", label_visibility="collapsed"
        )
        if view != "Depth":
            return Picked(str(view))
        statistic = st.segmented_control(
            "Statistic",
            list(depth.STATISTICS),
            default="norm",
            required=True,
            key=f"{key}-stat",
            label_visibility="collapsed",
        )
    theory = any(layer.cotangent_grad_norm is not None for r in results for layer in r.layers)
    offered = [name for name in depth.QUANTITIES if theory or name != "random cotangent"]
    chosen = st.pills(
        "Lines", offered, selection_mode="multi", default=offered[:2], key=f"{key}-lines", label_visibility="collapsed"
    )
    return Picked("Depth", tuple(name for name in offered if name in chosen) or (offered[0],), str(statistic))


def draw(
    picked: Picked, result: GradientResult, key: str, together: Sequence[GradientResult], *, presenter: bool
) -> None:
    """Headline numbers and the picked view of one result; ``together``: all results that share its axes."""
    if not result.layers:
        return
    headline(_NUMBERS[picked.view](result)[:3], key, presenting=presenter, short=len(together) > 1)
    if picked.view == "Depth":
        domain = depth.domain_of([r.layers for r in together], picked.quantities, picked.statistic)
        what = result.layers, picked.quantities, picked.statistic, theme(), domain
        chart = depth.depth_chart(*what, height=HEIGHT_PX, narrow=len(together) > 1)
        draw_chart(chart, f"{key}-depth", presenting=presenter)
    elif picked.view == "Training":
        training_map(result, key=f"{key}-map", presenter=presenter)
    elif picked.view == "Over time":
        _over_time(result, key, presenter)
    elif picked.view == "Shares":
        _shares(result, key, presenter)
    else:
        _clipping(result, key, presenter)
    if not presenter:
        _conditions(result)


def draw_pair(picked: Picked, a: GradientResult, b: GradientResult, key: str, *, presenter: bool) -> None:
    """Both results over depth on one axis, and where they differ most."""
    both = a.layers, b.layers
    told = [depth_pair.told(*both, quantity, picked.statistic) for quantity in picked.quantities]
    headline(told[:3], key, presenting=presenter)
    domain = depth.domain_of(both, picked.quantities, picked.statistic, predicted=False)
    chart = depth_pair.pair_chart(*both, picked.quantities, picked.statistic, theme(), domain, height=HEIGHT_PX)
    draw_chart(chart, f"{key}-pair", presenting=presenter)


def _shares(result: GradientResult, key: str, presenting: bool) -> None:
    chart = depth.shares_chart(result.layers, theme(), height=HEIGHT_PX)
    if chart is None:
        st.text("No share was measured: no activation function with bounds, and no gradient.")
    else:
        draw_chart(chart, f"{key}-shares", presenting=presenting)


def _over_time(result: GradientResult, key: str, presenting: bool) -> None:
    if result.over_time:
        chart = over_time.over_time_chart(result.over_time, theme(), height=HEIGHT_PX)
        draw_chart(chart, f"{key}-time", presenting=presenting)
    else:
        st.text("This model has no recurrent module that ran on a sequence.")


def _clipping(result: GradientResult, key: str, presenting: bool) -> None:
    if result.clipping.kind == "none" or not result.clipping.steps:
        st.text("This run does not clip.")
        return
    norms = clipping.norms_chart(result.clipping, theme(), height=HEIGHT_PX * 3 // 5)
    draw_chart(norms, f"{key}-norms", presenting=presenting)
    layers = clipping.layers_chart(result.layers, theme(), height=HEIGHT_PX * 3 // 5)
    draw_chart(layers, f"{key}-clipped", presenting=presenting)


def _depth_numbers(result: GradientResult) -> list[tuple[str, str, str]]:
    head, prediction = result.headline, result.prediction
    slope, predicted = head.decades_per_layer, prediction.decades_per_layer
    measured = prediction.measured_decades_per_layer
    inner = [layer.name for layer in result.layers if layer.inner]
    ends = f"activation gradient, {inner[0]} / {inner[-1]}" if inner else "activation gradient"
    numbers = [("First / last layer", text(head.activation_grad_ratio), ends)]
    numbers.append(("Decades per layer", text(slope), "of the activation gradient on its way back"))
    if predicted is not None:
        numbers.append(
            (
                "Predicted",
                text(predicted),
                f"½·log₁₀ χ with χ = {text(prediction.chi)}; random cotangent measured: {text(measured)}",
            )
        )
    else:
        numbers.append(("Predicted", "–", prediction.reason.partition(":")[0]))
    return numbers


def _training_numbers(result: GradientResult) -> list[tuple[str, str, str]]:
    first = result.loss[0] if result.loss else None
    numbers = [
        (
            "Loss",
            f"{text(first)} → {text(result.final_loss)}",
            f"{result.loss_name}, {len(result.loss)} steps",
        )
    ]
    if result.first_nonfinite:
        where = result.first_nonfinite
        numbers.append(("First non-finite", f"step {result.first_nonfinite_step}", f"{where.layer}: {where.operation}"))
    return numbers


def _clip_numbers(result: GradientResult) -> list[tuple[str, str, str]]:
    found = result.clipping
    if not found.steps:
        return []
    first = found.steps[0]
    returned = "nothing is returned" if first.returned is None else f"returned {text(first.returned)}"
    return [
        ("Norm at step 1", f"{text(first.norm_before)} → {text(first.norm_after)}", returned),
        ("Cosine", text(first.cosine), "before against after; 1 keeps the direction"),
        ("Steps clipped", f"{found.clipped_share:.0%}", f"of {len(found.steps)}, limit {text(found.limit)}"),
    ]


def _share_numbers(result: GradientResult) -> list[tuple[str, str, str]]:
    numbers = []
    for name in ("zero in fp16", "saturated", "silent units"):
        found = [
            (share, layer.name) for layer in result.layers if (share := getattr(layer, depth.SHARES[name])) is not None
        ]
        if found:
            share, layer = max(found, key=lambda pair: pair[0])
            numbers.append((name.capitalize(), f"{share:.1%}", f"at most, in {layer}"))
    return numbers


def _time_numbers(result: GradientResult) -> list[tuple[str, str, str]]:
    return [
        (
            "First / last time step",
            text(row.norms[0] / row.norms[-1] if row.norms[-1] else None),
            f"at the input of {row.name}",
        )
        for row in result.over_time[:3]
    ]


_NUMBERS = {
    "Depth": _depth_numbers,
    "Training": _training_numbers,
    "Clipping": _clip_numbers,
    "Shares": _share_numbers,
    "Over time": _time_numbers,
}


def _conditions(result: GradientResult) -> None:
    """What a norm must be read with."""
    parts = [f"loss: {result.loss_name}"]
    if result.settings["family"] != "own":
        parts.append(f"{result.settings['reduction']} over {result.batch_size} samples")
    elif result.batch_size:
        parts.append(f"{result.batch_size} samples")
    parts.append(f"{result.dtype}, {result.parameters:,} parameters")
    if result.instrument_s is not None:
        cost = result.instrument_s
        parts.append(
            f"watching costs {seconds_text(cost)} a step"
            if cost > 0
            else "watching a step costs less than the clock can tell"
        )
    st.caption(" · ".join(parts))


def text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}".replace("-", "−") if math.isfinite(value) else number_text(value)
