"""Stop and resume in Chromium: both curves and the gap are drawn, the choice of what is lost is followed, other views open."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import settle


def test_the_curves_follow_what_is_left_out(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/checkpoint_resume")
    settle(page)
    expect(page.get_by_text("Each part left out in turn")).to_be_visible(timeout=20_000)
    charts = page.locator("[data-testid=stVegaLiteChart] :is(canvas, svg)")
    expect(charts).to_have_count(3)
    expect(page.get_by_text("step 1", exact=True)).to_be_visible()
    page.goto(f"{app_url}/checkpoint_resume?cr-leave_out=nothing")
    settle(page)
    expect(page.get_by_text("It goes on bit for bit").first).to_be_visible()
    expect(page.get_by_text("none of 60", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("view", "words"),
    [("file", "part by part"), ("keys", "an optimizer's state"), ("loading", "kinds of object are refused")],
)
def test_every_view_draws(page: Page, app_url: str, view: str, words: str) -> None:
    page.goto(f"{app_url}/checkpoint_resume?cr-view={view}")
    settle(page)
    expect(page.get_by_text(words).first).to_be_visible()
