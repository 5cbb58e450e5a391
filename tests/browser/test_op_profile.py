"""The operator profile in Chromium: the table opens and adds up, the timeline sums a range, by mouse and by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import AtRest, saved_files, settle

QUICK = "op-model=mlp&op-layers=2&op-width=32&op-steps=2&op-warmup=1"
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@pytest.fixture
def profile(page: Page, app_url: str) -> Page:
    page.goto(f"{app_url}/op_profile?{QUICK}")
    settle(page)
    return page


def view(page: Page, name: str) -> None:
    page.get_by_role("radio", name=name, exact=True).click()


def seconds(text: str) -> float:
    """Of a cell such as "1.53 ms of 33.8 ms": the last number."""
    value, unit = re.findall(r"([\d.]+) (ns|µs|ms|s)\b", text)[-1]
    return float(value) * UNITS[unit]


def test_totals_of_the_call_tree_add_up(profile: Page) -> None:
    view(profile, "Operators")
    profile.get_by_role("radio", name="Call tree").click()
    rows = profile.locator(".operators tbody tr")
    expect(rows.first).to_contain_text("step")
    cells = [row.locator(".times").inner_text() for row in rows.all()]
    whole, parts = seconds(cells[0]), [seconds(cell) for cell in cells[1:]]
    assert sum(parts) == pytest.approx(whole, rel=0.02)  # three digits a row
    profile.get_by_role("button", name="Open forward").click()
    expect(rows.filter(has_text="aten::linear").first).to_be_visible()


def test_grouping_searching_and_sorting_need_no_rerun(profile: Page) -> None:
    view(profile, "Operators")
    names = profile.locator(".operators tbody tr .what")
    profile.get_by_label("Search operators, modules, shapes and lines").fill("addmm")
    expect(names).to_have_text(
        ["aten::addmm", "AddmmBackward0"]
        if names.first.inner_text() == "aten::addmm"
        else ["AddmmBackward0", "aten::addmm"]
    )
    profile.get_by_role("radio", name="Module").click()
    expect(profile.locator(".operators .column-place").filter(has_text="head (Linear)").first).to_be_visible()
    profile.get_by_role("button", name="calls").click()
    expect(profile.locator("th[aria-sort=descending]")).to_have_text("calls ▾")


def test_the_timeline_answers_keys_and_sums_a_range(profile: Page, at_rest: AtRest) -> None:
    view(profile, "Timeline")
    stage, note = profile.locator(".timeline .stage"), profile.locator(".timeline .note")
    expect(note).to_contain_text("Drag to sum a range")
    stage.focus()
    for key in ("ArrowRight", "f", "w", "d", "s", "a"):
        profile.keyboard.press(key)
    expect(note).to_contain_text("step:")
    box = at_rest(stage)
    profile.mouse.move(box["x"] + 50, box["y"] + 60)
    profile.mouse.down()
    profile.mouse.move(box["x"] + 350, box["y"] + 60, steps=4)
    profile.mouse.up()
    expect(note).to_contain_text("Self time:")
    chosen, inside = (seconds(text) for text in re.findall(r"[\d.]+ (?:ns|µs|ms|s)\b", note.inner_text())[:2])
    parts = [seconds(line) for line in note.locator("li").all_inner_texts()]
    assert inside <= chosen * 1.01
    assert sum(parts) == pytest.approx(inside, rel=0.03)
    profile.keyboard.press("Escape")
    expect(note).to_contain_text("Drag to sum a range")


def test_the_timeline_zooms_by_wheel_and_by_a_drag_over_its_ruler(profile: Page, at_rest: AtRest) -> None:
    view(profile, "Timeline")
    stage, note = profile.locator(".timeline .stage"), profile.locator(".timeline .note")
    expect(note).to_contain_text("Drag to sum a range")
    box = at_rest(stage)

    def summed() -> float:
        """Seconds that 200 pixels cover."""
        profile.mouse.move(box["x"] + 300, box["y"] + 60)
        profile.mouse.down()
        profile.mouse.move(box["x"] + 500, box["y"] + 60, steps=3)
        profile.mouse.up()
        expect(note).to_contain_text("chosen")
        return seconds(note.locator("b").inner_text().split(" chosen")[0])

    whole = summed()
    profile.mouse.wheel(0, -120)
    nearer = summed()
    assert nearer < 0.85 * whole
    profile.mouse.move(box["x"] + 100, box["y"] + 8)
    profile.mouse.down()
    profile.mouse.move(box["x"] + 100 + box["width"] / 4, box["y"] + 8, steps=3)
    profile.mouse.up()
    assert summed() == pytest.approx(nearer / 4, rel=0.05)
    profile.keyboard.press("Escape")
    profile.keyboard.press("f")
    assert summed() == pytest.approx(whole, rel=0.02)


def test_table_and_timeline_are_saved_as_shapes(profile: Page) -> None:
    view(profile, "Operators")
    expect(profile.locator(".operators tbody tr").first).to_be_visible()
    svg, _ = saved_files(profile, "operators")
    assert all(words in svg for words in ("aten::addmm", "self and total, per step", "FLOP", "Self times: "))
    assert "Call tree" not in svg
    view(profile, "Timeline")
    expect(profile.locator(".timeline .note")).to_contain_text("Drag to sum a range")
    expect(profile.locator(".operators")).to_have_count(0)  # the view before goes when the run is over
    svg, _ = saved_files(profile, "timeline")
    assert all(words in svg for words in (">backward<", ">main thread<", "memory: allocated minus freed"))
    assert svg.count("<rect") > 50
    assert all(words not in svg for words in ("Drag to sum", ">Fit<"))
