"""The page on serving in Chromium: stages are drawn, the first that parts follows the choice."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.conftest import settle


def test_the_first_stage_follows_the_departure(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/serving_skew")
    settle(page)
    expect(page.get_by_text("module bn", exact=True).first).to_be_visible()
    expect(page.locator("[data-testid=stVegaLiteChart] :is(canvas, svg)")).to_have_count(1)
    page.goto(f"{app_url}/serving_skew?sk-skew=labels+permuted")
    settle(page)
    expect(page.get_by_text("The paths part at label").first).to_be_visible()


def test_the_power_of_the_golden_set_is_drawn(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/serving_skew?sk-view=power")
    settle(page)
    expect(page.get_by_text("Share of names that change")).to_be_visible()
    expect(page.locator("[data-testid=stVegaLiteChart] :is(canvas, svg)")).to_have_count(1)
