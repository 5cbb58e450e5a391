"""The page on reproducibility in Chromium: ribbons and gap are drawn; a list of sources is saved and compared."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import settle


def test_the_ribbons_follow_the_change(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/reproducibility?rp-change=extra+draw")
    settle(page)
    expect(page.get_by_text("They part at bernoulli in step 3 forward").first).to_be_visible()
    expect(page.locator("[data-testid=stVegaLiteChart] svg.marks")).to_have_count(2)


def test_a_list_of_sources_is_compared_with_another(page: Page, app_url: str, tmp_path: Path) -> None:
    page.goto(f"{app_url}/reproducibility?rp-view=sources")
    settle(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save this list (JSON)").click()
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    saved["reproducibility"]["threads"] = "64"
    other = tmp_path / "theirs.json"
    other.write_text(json.dumps(saved), encoding="utf-8")
    page.locator("input[type=file]").set_input_files(other)
    expect(page.get_by_role("cell", name="64", exact=True)).to_be_visible()
