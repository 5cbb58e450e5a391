"""The page on transfers in Chromium: bars by line, and the marks in the program."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.conftest import settle


def test_waits_are_drawn_by_line(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/transfers")
    settle(page)
    expect(page.locator("[data-testid=stVegaLiteChart] svg.marks")).to_have_count(1)
    expect(page.get_by_text("20 × a boolean index").first).to_be_attached()
    expect(page.get_by_text("Line 14: a boolean index, 20 times").first).to_be_visible()


def test_copies_are_drawn_by_size(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/transfers?tr-view=copies")
    settle(page)
    expect(page.get_by_text("Copies by size").first).to_be_visible()
    expect(page.locator("[data-testid=stVegaLiteChart] svg.marks")).to_have_count(1)
