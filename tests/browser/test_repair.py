"""From a fault to its repair in Chromium: lines that light, one click, both graphs side by side."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.test_pages import type_program, visit

PROGRAM = """x = torch.tensor([1.0, 2.0], requires_grad=True)
y = torch.tanh(x)
y += 1
loss = y.sum()
loss.backward()"""


def test_a_fault_is_repaired_and_compared(page: Page, app_url: str) -> None:
    editor = visit(page, f"{app_url}/autograd_graph")
    type_program(page, editor, PROGRAM)
    page.keyboard.press("Control+Enter")
    site = page.get_by_role("button", name="line 3 · overwritten here")
    expect(site).to_be_visible()
    expect(page.locator(".line.site.first")).to_have_attribute("data-number", "3")
    expect(page.locator(".line.site:not(.first)")).to_have_count(2)
    expect(page.locator(".node.site-first")).to_contain_text("y = add")
    site.hover()
    expect(page.locator(".line.pointed")).to_have_attribute("data-number", "3")
    expect(page.locator(".node.is-lining")).to_contain_text("y = add")
    page.mouse.move(5, 5)
    expect(page.locator(".line.pointed")).to_have_count(0)

    editor.press("End")  # typed, not sent: what the editor says when it is left comes too late
    page.keyboard.type("  # late")
    page.get_by_role("button", name="Apply and compare").click()
    expect(editor).to_have_value(PROGRAM.replace("y += 1", "y = y + 1"))
    expect(page.locator(".figure")).to_have_count(2)
    expect(page.locator(".figure").nth(1)).to_contain_text("4 steps")
    expect(page.locator(".node:has(.halo)")).to_have_count(2)
    expect(page.get_by_text("Your program stopped")).to_have_count(0)


def test_names_of_a_stranger_are_text(page: Page, app_url: str) -> None:
    editor = visit(page, f"{app_url}/autograd_graph")
    type_program(page, editor, PROGRAM.replace("y += 1", "y += 1  # <img src=x onerror=alert(1)> **bold**"))
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("button", name="Apply and compare")).to_be_visible()
    expect(page.locator("[class*=-diff] .deleted.line").first).to_contain_text("<img src=x")
    expect(page.locator("[class*=-diff] img")).to_have_count(0)
