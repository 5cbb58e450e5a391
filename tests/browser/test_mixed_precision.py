"""The page on mixed precision in Chromium: the window is drawn with its slider, which moves it without a rerun."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.conftest import settle


def test_the_slider_moves_the_window_in_the_browser(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/mixed_precision")
    settle(page)
    slider = page.locator("[data-testid=stVegaLiteChart] input[type=range]")
    expect(slider).to_have_value("16")
    ran = page.get_by_text("Ran in").first.text_content()
    picture = page.locator("[data-testid=stVegaLiteChart] svg.marks")
    before = picture.inner_html()
    slider.fill("0")
    page.wait_for_timeout(500)
    assert picture.inner_html() != before
    assert page.get_by_text("Ran in").first.text_content() == ran


def test_the_scaler_and_the_program_are_drawn(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/mixed_precision?mp-preset=one-bad-batch")
    settle(page)
    expect(page.get_by_text("1 of 20", exact=True)).to_be_visible()
    expect(page.locator("[data-testid=stVegaLiteChart] :is(canvas, svg)")).to_have_count(2)
    page.goto(f"{app_url}/mixed_precision?mp-view=ops")
    settle(page)
    expect(page.get_by_text("Operations as they reach the kernels")).to_be_visible()
