"""Zoom: what is under the pointer stays there, nothing leaves the ends, gestures reach the arithmetic."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.browser.logic.conftest import Call

ZOOM = "components/kit/zoom.js"
SPAN = """(() => {
  const span = m.createSpan(() => v[1])
  span.reset(v[0])
  return v[2].map(([name, ...values]) => { span[name](...values); return [span.from, span.to] })
})()"""


def spans(call: Call, whole: float, least: float, *moves: list[Any]) -> list[list[float]]:
    return call(ZOOM, SPAN, whole, least, list(moves))


def test_what_is_pointed_at_stays_where_it_is(call: Call) -> None:
    rng = random.Random(0)
    for _ in range(100):
        start, width, at = rng.uniform(0, 60), rng.uniform(10, 40), rng.random()
        point, factor = start + at * width, rng.uniform(1.0, 9.0)
        _, (low, high) = spans(call, 100, 0.5, ["show", start, start + width], ["zoom", factor, point])
        assert (high - low) * factor == pytest.approx(width)
        assert (point - low) / (high - low) == pytest.approx(at)


def test_a_span_never_leaves_its_ends_and_never_vanishes(call: Call) -> None:
    rng = random.Random(1)
    moves = [
        rng.choice(
            [
                ["zoom", rng.uniform(0.1, 10), rng.uniform(-5, 105)],
                ["pan", rng.uniform(-2, 2)],
                ["show", rng.uniform(-50, 120), rng.uniform(-50, 120)],
            ]
        )
        for _ in range(500)
    ]
    for low, high in spans(call, 100, 2, *moves):
        assert low >= 0
        assert high <= 100 + 1e-9
        assert high - low >= 2 - 1e-9


def test_a_move_keeps_the_width_up_to_the_end(call: Call) -> None:
    assert spans(call, 100, 1, ["show", 20, 40], ["pan", 0.5], ["pan", 10], ["zoom", 0.01]) == [
        [20, 40],
        [30, 50],
        [80, 100],
        [0, 100],
    ]


def test_the_wheel_turned_back_undoes_itself_and_has_a_limit(call: Call) -> None:
    assert call(ZOOM, "m.wheelFactor({ deltaY: 50, deltaMode: 0 }) * m.wheelFactor({ deltaY: -50, deltaMode: 0 })") == (
        pytest.approx(1)
    )
    notch, line, wild = call(
        ZOOM, "[[-120, 0], [-7.5, 1], [-1e6, 0]].map(([deltaY, deltaMode]) => m.wheelFactor({ deltaY, deltaMode }))"
    )
    assert 1.2 < notch < 1.5
    assert notch == pytest.approx(line) == pytest.approx(wild)


def test_a_picture_keeps_the_point_under_the_pointer(call: Call) -> None:
    pixel, offset, before, after = 300.0, -40.0, 0.8, 2.0
    moved = call(ZOOM, "m.keptAt(...v)", pixel, offset, before, after)
    assert (pixel - moved) / after == pytest.approx((pixel - offset) / before)


TIMELINE = """(() => {
  const stage = document.body.appendChild(document.createElement("div"))
  stage.style.cssText = "position: fixed; left: 0; top: 0; width: 200px; height: 100px"
  stage.tabIndex = 0
  stage.setPointerCapture = () => {}
  const span = m.createSpan(() => 1), told = [], tell = name => (...values) => told.push([name, ...values.filter(x => typeof x === "number")])
  span.reset(100)
  const zoom = m.followTimeline(stage, span, () => ({ left: 0, width: 200, ruler: 20 }),
    { changed: tell("changed"), fit: tell("fit"), drag: tell("drag"), click: tell("click"), hover: tell("hover") })
  if (v[0].focus) stage.focus()
  const at = (name, x, y, more = {}) => stage.dispatchEvent(new PointerEvent(name, { clientX: x, clientY: y, bubbles: true, ...more }))
  for (const [name, ...values] of v[0].moves) {
    if (name === "key") zoom.key({ key: values[0] })
    else if (name === "wheel") stage.dispatchEvent(new WheelEvent("wheel", { clientX: 50, clientY: 50, cancelable: true, ...values[0] }))
    else at(name, ...values)
  }
  stage.remove()
  return { from: span.from, to: span.to, told }
})()"""


def gestures(call: Call, *moves: list[Any], focus: bool = True) -> dict[str, Any]:
    return call(ZOOM, TIMELINE, {"moves": list(moves), "focus": focus})


def test_the_wheel_zooms_only_where_the_visitor_is(call: Call) -> None:
    away = gestures(call, ["wheel", {"deltaY": -100}], focus=False)
    assert (away["from"], away["to"]) == (0, 100)
    there = gestures(call, ["wheel", {"deltaY": -100}])
    assert there["to"] - there["from"] < 90
    assert (25 - there["from"]) / (there["to"] - there["from"]) == pytest.approx(0.25)
    held = gestures(call, ["wheel", {"deltaY": -100, "ctrlKey": True}], focus=False)
    assert held["from"] == pytest.approx(there["from"])


def test_a_drag_over_the_ruler_zooms_and_one_below_belongs_to_the_figure(call: Call) -> None:
    zoomed = gestures(call, ["pointerdown", 160, 5], ["pointermove", 100, 50], ["pointerup", 100, 50])
    assert (zoomed["from"], zoomed["to"]) == (50, 80)
    own = gestures(call, ["pointerdown", 160, 50], ["pointermove", 100, 50], ["pointerup", 100, 50])
    assert (own["from"], own["to"]) == (0, 100)
    assert own["told"] == [["drag", 50, 80]]
    clicked = gestures(call, ["pointerdown", 160, 50], ["pointermove", 161, 50], ["pointerup", 161, 50])
    assert clicked["told"] == [["click"]]


def test_shift_and_drag_moves_and_keys_zoom_move_and_fit(call: Call) -> None:
    moved = gestures(
        call,
        ["key", "w"],
        ["pointerdown", 100, 50, {"shiftKey": True}],
        ["pointermove", 140, 50],
        ["pointerup", 140, 50],
    )
    assert moved["to"] - moved["from"] == pytest.approx(100 / 1.6)
    assert moved["from"] == pytest.approx((100 - 100 / 1.6) / 2 - 40 / 200 * 100 / 1.6)
    keyed = gestures(call, ["key", "W"], ["key", "d"], ["key", "a"], ["key", "s"], ["key", "f"], ["key", "x"])
    assert (keyed["from"], keyed["to"]) == pytest.approx((0, 100))
    assert [name for name, *_ in keyed["told"]] == ["changed"] * 4 + ["fit"]
