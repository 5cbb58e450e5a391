"""The memory figure in Chromium: the peak, stepping, grouping, zoom, tooltip, every view without a console error."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import AtRest, saved_files, settle

QUERY = "?mt-model=mlp&mt-layers=2&mt-width=32&mt-optimizer=sgd"


@pytest.fixture
def figure(page: Page, app_url: str) -> Page:
    """The page with a small model, measured."""
    page.goto(f"{app_url}/memory_timeline{QUERY}")
    settle(page)
    expect(page.locator(".memory .area").first).to_be_visible()
    return page


def position(page: Page) -> int:
    found = re.search(r"instant ([\d,]+) of", page.locator(".memory .position").inner_text())
    assert found
    return int(found[1].replace(",", ""))


def test_it_opens_at_the_peak_and_steps(figure: Page):
    at_peak = position(figure)
    total = figure.locator(".alive-head .total")
    peak_text = figure.locator(".totals span").first.inner_text()
    assert total.inner_text().split(" (")[0] in peak_text
    figure.locator(".memory .stage").focus()
    figure.keyboard.press("ArrowRight")
    assert position(figure) == at_peak + 1
    figure.keyboard.press("End")
    expect(figure.locator(".alive-head strong")).to_contain_text("Operation")
    figure.keyboard.press("m")
    assert position(figure) == at_peak


def test_grouping_and_zoom_by_key(figure: Page):
    figure.locator(".memory .stage").focus()
    rows = figure.locator(".alive-row .key")
    expect(rows.filter(has_text="parameters")).to_have_count(1)
    figure.keyboard.press("g")
    expect(rows.filter(has_text="blocks.0.0")).not_to_have_count(0)
    expect(figure.locator(".step-text")).to_have_text(["step 1", "step 2"])
    figure.keyboard.press("2")
    expect(figure.locator(".step-text")).to_have_text(["step 2"])


def test_wheel_drag_and_keys_zoom_and_f_shows_the_whole(figure: Page, at_rest: AtRest):
    stage, ranges = figure.locator(".memory .stage"), figure.locator(".memory .ranges option:checked")
    box = at_rest(stage)
    whole = figure.locator(".memory .grid").text_content() or ""
    figure.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    figure.mouse.wheel(0, -240)
    expect(ranges).to_have_text("a part")
    expect(figure.locator(".memory .grid")).not_to_have_text(whole)
    figure.keyboard.press("f")
    expect(ranges).to_have_text("all 2 steps")
    expect(figure.locator(".memory .grid")).to_have_text(whole)
    figure.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 8)
    figure.mouse.down()
    figure.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 8, steps=3)
    figure.mouse.up()
    expect(ranges).to_have_text("a part")
    before = figure.locator(".memory .grid").text_content() or ""
    figure.keyboard.press("d")
    expect(figure.locator(".memory .grid")).not_to_have_text(before)
    figure.keyboard.press("2")
    expect(ranges).to_have_text("step 2")


def test_it_is_saved_without_its_controls(figure: Page):
    svg, _ = saved_files(figure, "memory-timeline")
    assert all(words in svg for words in ("peak ", "saved activations", "step 2", " alive", "operation, in the order"))
    assert all(words not in svg for words in ("all 2 steps", "instant ", ">category<"))


def test_the_tooltip_has_exact_numbers(figure: Page, at_rest: AtRest):
    stage = figure.locator(".memory .stage")
    box = at_rest(stage)
    stage.hover(position={"x": box["width"] * 0.6, "y": box["height"] * 0.7})
    expect(figure.locator(".memory .tip strong")).to_have_text(re.compile(r"[KM]iB \([\d,]+ B\)"))


@pytest.mark.parametrize("view", ["Settings", "Saved", "Checkpointing", "Will it fit?", "Out of memory"])
def test_every_view_draws(figure: Page, view: str):
    figure.get_by_role("radio", name=view).click()
    expect(
        figure.locator("[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg").first
    ).to_be_visible()


def test_presenter_fills_the_screen(page: Page, app_url: str, at_rest: AtRest):
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.goto(f"{app_url}/memory_timeline{QUERY}&present=1")
    expect(page.locator(".memory .area").first).to_be_visible(timeout=90_000)
    at_rest(page.locator(".memory"), lambda box: box["y"] + box["height"] <= 1080 + 2)
    page.keyboard.press("ArrowLeft")  # the figure listens to the whole page
    expect(page.locator(".memory .position")).to_contain_text("instant")
