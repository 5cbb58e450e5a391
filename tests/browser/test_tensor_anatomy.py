"""The memory strips in Chromium: stepping moves along lines, cells stand at their true places, views draw."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import saved_files, settle


@pytest.fixture
def figure(page: Page, app_url: str) -> Page:
    """The default program, run."""
    page.goto(f"{app_url}/tensor_anatomy")
    settle(page)
    expect(page.locator(".strips .piece").first).to_be_visible()
    return page


def indices(page: Page, name: str) -> list[str]:
    """Numbers in the cells of one name, in order of memory."""
    strip = page.locator(".strips .cells").filter(has=page.locator("text.name", has_text=re.compile(f"^{name}$")))
    return strip.evaluate(
        """(svg, name) => {
            const y = [...svg.querySelectorAll("text.name")].find(text => text.textContent === name).getAttribute("y")
            const near = [...svg.querySelectorAll("text.index")].filter(text => Math.abs(text.getAttribute("y") - y) < 6)
            return near.map(text => text.textContent)
        }""",
        name,
    )


def test_it_opens_at_the_end_with_every_name_in_its_memory(figure: Page) -> None:
    expect(figure.locator(".strips .sentence")).to_have_text("5 names, 3 pieces of memory, 48 B copied")
    expect(figure.locator(".strips .piece")).to_have_count(3)
    assert indices(figure, "t") == ["0", "3", "6", "9", "1", "4", "7", "10", "2", "5", "8", "11"]
    assert indices(figure, "row") == ["0", "1", "2", "3"]
    chips = figure.locator(".strips .chip").all_inner_texts()
    assert chips == ["new memory 48 B", "view", "view", "new memory 48 B", "in place", "new memory 16 B"]


def test_keys_move_along_operations_and_lines(figure: Page) -> None:
    stage, note = figure.locator(".strips .stage"), figure.locator(".strips .note")
    stage.focus()
    figure.keyboard.press("Home")
    expect(note).to_contain_text("Nothing has run yet")
    figure.keyboard.press("ArrowDown")
    expect(note).to_contain_text("Line 1.")
    expect(figure.locator(".strips .piece")).to_have_count(1)
    figure.keyboard.press("ArrowDown")
    expect(note).to_contain_text("Line 2. getitem: row is [4]")
    figure.keyboard.press("ArrowRight")
    expect(figure.locator(".strips .row.marked .number")).to_have_text("3")
    figure.keyboard.press("ArrowUp")
    expect(note).to_contain_text("Line 2.")
    figure.keyboard.press("End")
    expect(note).to_contain_text("Line 6. mul: twice")


def test_a_line_is_chosen_by_its_mark(figure: Page) -> None:
    figure.locator(".strips .chip", has_text="in place").click()
    expect(figure.locator(".strips .note")).to_contain_text("Line 5. add_")
    expect(figure.locator(".strips .position")).to_have_text("operation 6 of 7")


def test_it_is_saved_as_shapes(figure: Page) -> None:
    svg, _ = saved_files(figure, "memory-strips")
    assert all(words in svg for words in ("memory 1", "twice", "reshape"))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("promotion", "Three tiers"),
        ("precision", "One sum, in several orders"),
        ("numpy", "shared"),
        ("devices", "What a move returns"),
        ("data", "The layout swapped"),
    ],
)
def test_every_view_draws(page: Page, app_url: str, view: str, words: str) -> None:
    page.goto(f"{app_url}/tensor_anatomy?ta-view={view}")
    settle(page)
    if view == "numpy":
        expect(page.get_by_test_id("stDataFrame").first).to_be_visible()
    else:
        expect(page.get_by_text(words).first).to_be_visible()
