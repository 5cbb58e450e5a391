"""The page on fine-tuning in Chromium: a bar a tensor, and the other views."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import settle


def test_the_default_tells_what_did_not_move(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/fine_tuning")
    settle(page)
    expect(page.locator("[data-testid=stVegaLiteChart] :is(canvas, svg)")).to_have_count(1)
    expect(page.get_by_text("1,571 / 1,637")).to_be_visible()
    expect(page.get_by_text("The optimizer holds the old head and not the new one").first).to_be_visible()


@pytest.mark.parametrize(("view", "words"), [("midway", "then 20 more"), ("lora", "rank of the update")])
def test_every_view_draws(page: Page, app_url: str, view: str, words: str) -> None:
    page.goto(f"{app_url}/fine_tuning?ft-view={view}")
    settle(page)
    expect(page.get_by_text(words).first).to_be_visible()
    expect(page.locator("[data-testid=stVegaLiteChart] :is(canvas, svg)")).to_have_count(1)
