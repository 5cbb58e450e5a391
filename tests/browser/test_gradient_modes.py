"""The bands in Chromium: the arrow to the line of birth, stepping along changes of mode, the other views."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import saved_files, settle


@pytest.fixture
def figure(page: Page, app_url: str) -> Page:
    """The default program, run."""
    page.goto(f"{app_url}/gradient_modes")
    settle(page)
    expect(page.locator(".bands .row").first).to_be_visible()
    return page


def test_it_opens_at_the_fault_with_an_arrow_to_the_birth(figure: Page) -> None:
    expect(figure.locator(".bands .arrow")).to_have_count(1)
    expect(figure.locator(".bands .row.site.first .role")).to_contain_text("born in inference mode")
    expect(figure.locator(".bands .row.marked > .number")).to_have_text("7")
    expect(figure.locator(".bands .note")).to_contain_text("Fails here")
    assert figure.locator(".bands .stripe .mode-inference").count() >= 2


def test_keys_move_along_steps(figure: Page) -> None:
    stage, note = figure.locator(".bands .stage"), figure.locator(".bands .note")
    stage.focus()
    figure.keyboard.press("Home")
    expect(note).to_contain_text("Nothing has run yet")
    expect(figure.locator(".bands circle.thread")).to_have_count(0)
    figure.keyboard.press("ArrowRight")
    expect(note).to_contain_text("Line 1.")
    figure.keyboard.press("ArrowDown")
    expect(note).to_contain_text("grad mode → inference mode")
    figure.keyboard.press("End")
    expect(figure.locator(".bands .arrow")).to_have_count(1)


def test_it_is_saved_as_shapes(figure: Page) -> None:
    svg, _ = saved_files(figure, "mode-bands")
    assert "inference" in svg


@pytest.mark.parametrize(("view", "words"), [("matrix", "One operation in each mode"), ("uses", "Click a cell")])
def test_every_view_draws(page: Page, app_url: str, view: str, words: str) -> None:
    page.goto(f"{app_url}/gradient_modes?gm-view={view}")
    settle(page)
    expect(page.get_by_text(words).first).to_be_visible()
