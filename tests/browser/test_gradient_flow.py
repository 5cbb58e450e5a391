"""The training map in a browser: stepped by keyboard to the last step, played, and told apart in words."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import saved_files, settle


def test_the_training_map_is_stepped_by_keyboard(page: Page, app_url: str):
    page.goto(f"{app_url}/gradient_flow?gf-preset=clipping-hides-a-bad-learning-rate")
    settle(page)
    page.get_by_role("radio", name="Training", exact=True).click()
    field = page.get_by_role("img", name=re.compile("Heat map of 9 layers over 40 training steps"))
    expect(field).to_be_visible()
    settle(page)
    field.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("step 1 of 40", exact=True)).to_be_visible()
    expect(page.get_by_text(re.compile(r"^Step 1: loss 3\.028; norm of the weight gradient, from"))).to_be_visible()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_text("step 4 of 40", exact=True)).to_be_visible()
    page.keyboard.press("End")
    expect(page.get_by_text("step 40 of 40", exact=True)).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    expect(page.get_by_text(re.compile(r"^step [2-9] of 40$"))).to_be_visible()


def test_the_training_map_is_saved_as_shapes(page: Page, app_url: str):
    page.goto(f"{app_url}/gradient_flow?gf-preset=clipping-hides-a-bad-learning-rate")
    settle(page)
    page.get_by_role("radio", name="Training", exact=True).click()
    expect(page.get_by_role("img", name=re.compile("Heat map of 9 layers"))).to_be_visible()
    svg, _ = saved_files(page, "training-map")
    assert all(words in svg for words in ("loss (log)", ">layer 1<", "training step", "NaN or ∞"))
    assert svg.count("<rect") >= 9 * 40
    assert "step 40 of 40" not in svg


def test_the_figure_over_depth_has_its_legend_and_axes(page: Page, app_url: str):
    page.goto(f"{app_url}/gradient_flow")
    chart = page.locator("[data-testid=stVegaLiteChart]").first
    expect(chart).to_be_visible()
    for words in ("activation gradient", "predicted (dashed)", "layer, from input to output", "normal 6.1e-05"):
        expect(chart.get_by_text(words).first).to_be_attached()


def test_a_program_of_ones_own_is_measured(page: Page, app_url: str):
    page.goto(f"{app_url}/gradient_flow?gf-preset=a-model-of-your-own")
    editor = page.locator("textarea[aria-label^=Program]")
    expect(editor).to_be_visible()
    editor.fill(
        "model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 1))\nbatch = (torch.ones(3, 4), torch.zeros(3, 1))"
    )
    editor.press("Control+Enter")
    expect(page.get_by_text(re.compile("loss: mean squared error · 3 samples"))).to_be_visible()
