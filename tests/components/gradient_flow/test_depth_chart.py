"""Charts of the gradient flow page: what is drawn where, also for zeros, NaN and what was not measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from components.gradient_flow.charts.clipping import layers_chart, norms_chart
from components.gradient_flow.charts.depth import QUANTITIES, depth_chart, domain_of, field, shares_chart
from components.gradient_flow.charts.depth_pair import pair_chart, told
from components.gradient_flow.training_map.scene import training_scene
from lab.contract import silent
from lab.experiments.gradient_flow import Params, run
from lab.quantities import number_text
from lab.records.gradients import GradientResult, Layer


@cache
def result(**settings: Any) -> GradientResult:
    return run(Params(**{"depth": 14, "width": 8, "batch": 4, "steps": 3, **settings}), silent)


def rows(chart: Any, kind: str) -> list[dict[str, Any]]:
    """The data of all layers whose mark is of this kind."""
    made = chart.to_dict()
    found = []
    layers = made.get("layer", [made])
    for layer in [inner for outer in layers for inner in outer.get("layer", [outer])]:
        mark = layer["mark"] if isinstance(layer["mark"], str) else layer["mark"]["type"]
        data = layer.get("data", made.get("data"))
        if mark == kind:
            found += data["values"] if "values" in data else made["datasets"][data["name"]]
    return found


def drawn(layers: Sequence[Layer], *quantities: str, statistic: str = "norm") -> Any:
    return depth_chart(layers, quantities, statistic, "light", domain_of([layers], quantities, statistic))


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("statistic", ["norm", "RMS", "mean", "max"])
def test_every_measured_layer_is_a_point(quantity, statistic):
    layers = result().layers
    lines = rows(drawn(layers, quantity, statistic=statistic), "point")
    expected = {layer.name: abs(v) for layer in layers if (v := getattr(layer, field(quantity, statistic))) is not None}
    assert {row["layer"]: row["value"] for row in lines} == pytest.approx(expected)


def test_the_prediction_meets_the_measurement_at_the_last_layer():
    layers = result().layers
    dashed = [
        row for row in rows(drawn(layers, "activation gradient"), "line") if row["series"].startswith("predicted")
    ]
    inner: list[Any] = [layer for layer in layers if layer.inner]
    assert dashed[-1]["at"] == pytest.approx(inner[-1].activation_grad_norm)
    assert dashed[0]["at"] / dashed[-1]["at"] == pytest.approx(
        inner[0].predicted_grad_norm / inner[-1].predicted_grad_norm
    )


def test_no_prediction_without_a_closed_form_or_for_a_maximum():
    for made in (drawn(result(norm="layer").layers, "activation gradient"), drawn(result().layers, "activation gradient", statistic="max")):  # fmt: skip
        assert not [row for row in rows(made, "line") if row["series"].startswith("predicted")]


def test_zero_and_nan_are_named_at_the_edge_and_no_point():
    layers = list(result().layers)
    layers[:3] = (replace(layer, weight_grad_norm=v) for layer, v in zip(layers, (0.0, math.nan, None), strict=False))
    chart = drawn(layers, "weight gradient")
    named = {row["layer"]: row["shown"] for row in rows(chart, "text") if "layer" in row}
    assert named == {"layer 1": "0", "layer 2": "NaN"}
    assert not {"layer 1", "layer 2", "layer 3"} & {row["layer"] for row in rows(chart, "point")}


def test_what_is_not_part_of_the_depth_is_a_point_beside_the_line():
    chart = drawn(result(family="rnn").layers, "activation gradient")
    assert {row["layer"] for row in rows(chart, "point")} - {row["layer"] for row in rows(chart, "line")} == {
        "input",
        "head",
    }


def test_two_results_share_an_axis():
    a, b = result().layers, result(activation="sigmoid").layers
    both = domain_of([a, b], ["weight gradient"], "norm")
    assert both[0] == domain_of([b], ["weight gradient"], "norm")[0]
    assert both[1] >= domain_of([a], ["weight gradient"], "norm")[1]


def test_a_pair_shares_one_axis_and_shows_where_it_differs():
    a, b = result().layers, result(activation="sigmoid").layers
    domain = domain_of([a, b], ["weight gradient"], "norm", predicted=False)
    chart = pair_chart(a, b, ["weight gradient"], "norm", "light", domain)
    lines = rows(chart, "line")
    for side, layers in (("A", a), ("B", b)):
        drawn_here = {row["layer"]: row["at"] for row in lines if row["side"] == side}
        assert drawn_here == pytest.approx({layer.name: layer.weight_grad_norm for layer in layers if layer.inner})
    bands = rows(chart, "area")
    ratios = {
        layer.name: (layer.weight_grad_norm or 0) / (other.weight_grad_norm or 1)
        for layer, other in zip(b, a, strict=True)
    }
    assert {band["layer"]: band["high"] / band["low"] for band in bands} == pytest.approx(
        {name: max(ratio, 1 / ratio) for name, ratio in ratios.items() if name.startswith("layer")}
    )
    worst = max((name for name in ratios if ratios[name]), key=lambda name: abs(math.log(ratios[name])))
    name, values, words = told(a, b, "weight gradient", "norm")
    assert name == f"weight gradient, {worst}"
    assert number_text(ratios[worst]) in words
    assert "→" in values


def test_a_pair_without_a_shared_layer_has_no_difference():
    a = result().layers
    none = [replace(layer, weight_grad_norm=0.0) for layer in a]
    assert told(a, none, "weight gradient", "norm")[1:] == ("–", "no layer in which both are above zero")


def test_shares_that_were_not_measured_have_no_line():
    made = shares_chart(result(activation="relu").layers, "dark")
    series = {row["series"] for row in rows(made, "line")}
    assert "silent units" in series
    assert "saturated" not in series
    none: Any = dict.fromkeys(
        ("saturated_share", "dead_share", "underflow_fp16_share", "underflow_bf16_share", "underflow_fp16_scaled_share")
    )
    bare = [replace(layer, **none) for layer in result().layers]
    assert shares_chart(bare, "light") is None


def test_clipping_before_and_after():
    data = result(clip="norm", clip_limit=1e-3)
    steps = data.clipping.steps
    lines = rows(norms_chart(data.clipping, "light"), "line")
    assert {(r["step"], r["series"]): r["value"] for r in lines} == pytest.approx(
        {
            (s.step, name): getattr(s, key)
            for s in steps
            for name, key in (("before", "norm_before"), ("after", "norm_after"))
        }
    )
    points = rows(layers_chart(data.layers, "light"), "circle")
    assert len(points) == 2 * len(data.layers)


def test_what_is_not_finite_is_written():
    data = result(clip="norm", trap="inf")
    assert {row["shown"] for row in rows(norms_chart(data.clipping, "light"), "text")} == {"∞", "NaN"}
    assert "0" in {row["shown"] for row in rows(layers_chart(data.layers, "light"), "text")}


def test_the_scene_of_the_heat_map():
    data = result()
    scene = training_scene(data)
    first = scene["quantities"][0]
    assert first["rows"] == [[step.weight_grad_norm[i] for step in data.steps] for i in range(len(data.layers))]
    assert first["reference"] == data.steps[0].weight_grad_norm[13]
    assert 2 <= first["decades"] <= 8
    assert scene["loss"] == list(data.loss)
    broken = training_scene(result(clip="norm", trap="inf"))
    assert "NaN" in broken["loss"]  # by name: a NaN in its data would end the component
