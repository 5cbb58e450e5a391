"""The start page in Chromium: a graph that walks, a program that is pasted, lessons that are found and marked as seen."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

PROGRAM = "x = torch.tensor([3.0], requires_grad=True)\nloss = (x * x).sum()\nloss.backward()\n"


def opened(page: Page, app_url: str) -> None:
    page.goto(app_url)
    expect(page.get_by_role("heading", name="All lessons")).to_be_visible()


def test_a_pasted_program_opens_on_the_chosen_page_and_waits(page: Page, app_url: str) -> None:
    opened(page, app_url)
    page.get_by_role("textbox", name="Your program").fill(PROGRAM)
    page.get_by_role("button", name="Open the program on the page Autograd graph").click()
    expect(page.locator("textarea[aria-label^=Program]")).to_have_value(PROGRAM)
    expect(page.get_by_text("Read it, then press Run")).to_be_visible()
    opened(page, app_url)
    page.get_by_role("textbox", name="Your program").fill(PROGRAM)
    page.get_by_role("button", name="Open the program on the page Memory timeline").click()
    page.wait_for_url(re.compile("mt-model=own"))
    expect(page.locator("textarea[aria-label^=Program]")).to_have_value(PROGRAM)


def test_lessons_are_found_by_words_question_and_error_and_marked_as_seen(page: Page, app_url: str) -> None:
    opened(page, app_url)
    field, lessons = page.get_by_role("searchbox"), page.locator(".lessons a")
    field.fill("dropout eval")
    expect(lessons.first).to_contain_text("Train and eval")
    field.fill("A3")
    expect(lessons.first).to_contain_text("question A3")
    field.fill(
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation"
    )
    expect(lessons.first).to_contain_text("view then in-place")
    field.fill("xyzzy")
    expect(page.get_by_text("No lesson has these words.")).to_be_visible()
    assert not page.locator(".path .seen").count()
    page.locator(".path a").filter(has_text="a value used twice").click()
    expect(page.get_by_role("heading", name="What did autograd record?")).to_be_visible()
    page.get_by_role("link", name="Start").click()
    expect(page.locator(".path a").filter(has_text="a value used twice")).to_contain_text("seen")


def test_the_graph_walks_by_itself_until_it_is_touched(page: Page, app_url: str) -> None:
    opened(page, app_url)
    expect(page.locator(".position")).to_contain_text("step 2 of 6")
    page.locator(".stage").click(position={"x": 20, "y": 20})
    held = page.locator(".position").inner_text()
    page.wait_for_timeout(3500)
    assert page.locator(".position").inner_text() == held


def test_the_graph_stands_still_where_motion_is_not_wanted(page: Page, app_url: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    opened(page, app_url)
    expect(page.locator(".position")).to_have_text("6 steps")
    page.wait_for_timeout(3500)
    expect(page.locator(".position")).to_have_text("6 steps")
