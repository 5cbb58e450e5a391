"""What only a browser can show: typing, keys, the address, presenter mode, narrow screens."""

from __future__ import annotations

import random
import re
import string

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from tests.browser.conftest import _is_foreign, settle

BROKEN = "x = torch.ones(3, requires_grad=True)\ny = x @ torch.ones(4)\nloss = y.sum()"
FIXED = "x = torch.ones(3, requires_grad=True)\ny = x * 5\nloss = y.sum()\nloss.backward()"


def visit(page: Page, address: str) -> Locator:
    """Open the autograd page and return its editor once there is something to see."""
    page.goto(address)
    editor = page.locator("textarea[aria-label^=Program]")
    expect(editor).to_be_visible()
    return editor


def type_program(page: Page, editor: Locator, program: str) -> None:
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    for number, line in enumerate(program.split("\n")):
        if number:
            page.keyboard.press("Enter")
        page.keyboard.type(line)


def picture(page: Page) -> Locator:
    return page.locator("svg").filter(has_text="loss")


def test_type_run_meet_an_error_fix_it_see_the_graph(page: Page, app_url: str):
    editor = visit(page, f"{app_url}/autograd_graph")
    type_program(page, editor, BROKEN)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Your program stopped")).to_be_visible()
    expect(page.locator(".line.wrong")).to_have_attribute("data-number", "2")
    type_program(page, editor, FIXED)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Your program stopped")).to_have_count(0)
    expect(page.locator(".line.wrong")).to_have_count(0)
    expect(picture(page).first).to_contain_text("loss = sum")


def delay_messages(page: Page, seconds: float) -> None:
    """Let everything that the browser says reach the server late."""

    def route(ws: WebSocketRoute) -> None:
        server = ws.connect_to_server()

        def pass_on(message: str | bytes) -> None:
            page.wait_for_timeout(1000 * seconds)
            server.send(message)

        ws.on_message(pass_on)

    page.route_web_socket(re.compile("_stcore/stream"), route)


def test_a_program_typed_during_the_first_run_is_kept_when_messages_are_late(page: Page, app_url: str):
    delay_messages(page, 0.7)
    editor = visit(page, f"{app_url}/autograd_graph?ag-preset=a-small-network")
    type_program(page, editor, FIXED)
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile("ag-code"))
    expect(picture(page).first).to_contain_text("y = mul")
    expect(editor).to_have_value(FIXED)


def test_a_preset_stays_when_a_late_message_speaks_of_the_settings_before(page: Page, app_url: str):
    page.goto(f"{app_url}/gradient_flow")
    settle(page)
    delay_messages(page, 0.7)
    page.reload()
    settle(page)
    page.get_by_role("combobox", name="Preset").click()
    page.get_by_role("option", name="sigmoid, 30 layers deep").click()
    page.get_by_role("radio", name="RMS").click()  # carries every widget as the browser still shows it
    page.wait_for_url(re.compile("gf-preset=sigmoid-30-layers-deep"))
    page.wait_for_timeout(3000)
    assert "gf-preset=sigmoid-30-layers-deep" in page.url


def test_a_link_brings_the_program_and_waits_for_run(page: Page, app_url: str):
    editor = visit(page, f"{app_url}/autograd_graph")
    type_program(page, editor, FIXED)
    page.keyboard.press("Control+Enter")
    expect(picture(page).first).to_contain_text("y = mul")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Link copied.")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert "ag-code=" in link
    assert len(link) < 400

    other = page.context.new_page()
    editor = visit(other, link)
    expect(editor).to_have_value(FIXED)
    expect(other.get_by_text("Read it, then press Run")).to_be_visible()
    expect(picture(other)).to_have_count(0)
    editor.press("Control+Enter")
    expect(picture(other).first).to_contain_text("y = mul")


def test_a_link_carries_the_comparison_and_the_step(page: Page, app_url: str):
    visit(page, f"{app_url}/autograd_graph")
    settle(page)
    page.get_by_role("button", name="Pin as A").click()
    page.get_by_role("combobox", name="Preset").click()
    page.get_by_role("option", name="broadcast bias").click()
    expect(page.locator(".figure").nth(1)).to_contain_text("3 steps")
    for _ in range(2):
        page.get_by_role("button", name="Next step (→)").nth(1).click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Link copied.")).to_be_visible()

    other = page.context.new_page()
    other.goto(page.evaluate("navigator.clipboard.readText()"))
    expect(other.locator(".figure").nth(1).locator(".position")).to_have_text("step 2 of 3")
    expect(other.locator(".figure").nth(0)).to_contain_text("h = sigmoid")
    expect(other.locator(".line.pointed")).to_have_attribute("data-number", "3")


def test_a_link_carries_the_view(page: Page, app_url: str):
    page.goto(f"{app_url}/gradient_flow?gf.view=Shares")
    expect(page.get_by_role("radio", name="Shares")).to_be_checked()
    page.get_by_role("radio", name="Depth").click()
    page.get_by_role("radio", name="RMS").click()
    page.wait_for_url(re.compile(r"gf\.stat=RMS"))
    assert "gf.view" not in page.url


def test_without_a_clipboard_the_link_is_selected_and_a_long_program_is_refused(page: Page, app_url: str):
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    editor = visit(page, f"{app_url}/autograd_graph")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text(re.compile("Link copied.|Copy the selected link."))).to_be_visible()
    rng = random.Random(0)
    editor.fill("".join(rng.choices(string.ascii_letters + string.digits, k=12_000)))
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("The program is too long for a link")).to_be_visible()


def test_the_colours_of_the_editor(page: Page, app_url: str):
    editor = visit(page, f"{app_url}/autograd_graph")
    editor.fill(
        '@decorated\ndef f(x):  # it\'s a comment\n    return f"""two\nlines""" + \'o\\\'ne\' + elf + 0x1F + 1.5e-3\n'
    )
    coloured = {
        kind: page.locator(f".ink .{kind}").all_inner_texts()
        for kind in ("decorator", "keyword", "call", "comment", "string", "number")
    }
    assert coloured == {
        "decorator": ["@decorated"],
        "keyword": ["def", "return"],
        "call": ["f"],
        "comment": ["# it's a comment"],
        "string": ['f"""two', 'lines"""', "'o\\'ne'"],
        "number": ["0x1F", "1.5e-3"],
    }
    assert page.locator(".ink .line").count() == 5


def test_going_back_brings_back_the_state(page: Page, app_url: str):
    editor = visit(page, f"{app_url}/autograd_graph")
    first = editor.input_value()
    type_program(page, editor, FIXED)
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile("ag-code"))
    page.go_back()
    expect(editor).to_have_value(first)
    page.get_by_role("link", name="Start").click()
    expect(page.get_by_role("heading", name="PyTorch Internals Lab")).to_be_visible()
    page.get_by_test_id("stHeader").get_by_text("Autograd", exact=True).click()
    page.get_by_test_id("stTopNavDropdownLink").filter(has_text="Autograd graph").click()
    expect(editor).to_have_value(first)


def test_the_editor_indents_and_lets_go_of_the_keyboard(page: Page, app_url: str):
    editor = visit(page, f"{app_url}/autograd_graph")
    type_program(page, editor, "for i in range(2):\nif i:\npass")
    expect(editor).to_have_value("for i in range(2):\n    if i:\n        pass")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.type("rc p?")
    expect(editor).to_have_value("for i in range(2):\n    if i:\n        pass\nrc p?")
    assert "present" not in page.url
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(editor).not_to_be_focused()


def test_the_figure_takes_the_room_and_a_line_of_60_characters_fits(page: Page, app_url: str):
    page.set_viewport_size({"width": 1440, "height": 900})
    editor = visit(page, f"{app_url}/autograd_graph")
    settle(page)
    expect(page.locator(".figure .node").first).to_be_visible()
    assert page.locator(".st-key-page-figure").bounding_box()["width"] >= 900  # type: ignore[index]
    row = page.locator(".ink .line").first
    heights = []
    for text in ("x = 1", "x" * 60, "x" * 90):
        editor.fill(text)
        heights.append(row.evaluate("e => e.offsetHeight"))
    assert heights[1] == heights[0]
    assert heights[2] == pytest.approx(2 * heights[0], abs=2)


def test_the_line_between_controls_and_figure_is_dragged_and_remembered(page: Page, app_url: str):
    page.set_viewport_size({"width": 1440, "height": 900})
    visit(page, f"{app_url}/autograd_graph")
    settle(page)
    figure, line = page.locator(".st-key-page-figure"), page.locator(".splitter")
    before, at = figure.bounding_box(), line.bounding_box()
    assert before
    assert at
    page.mouse.move(at["x"] + 12, at["y"] + 60)
    page.mouse.down()
    page.mouse.move(at["x"] + 162, at["y"] + 60, steps=3)
    page.mouse.up()
    page.wait_for_function(
        "w => document.querySelector('.st-key-page-figure').clientWidth < w - 140", arg=before["width"]
    )
    page.reload()
    settle(page)
    page.wait_for_function(
        "w => document.querySelector('.st-key-page-figure').clientWidth < w - 140", arg=before["width"]
    )
    line.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "w => document.querySelector('.st-key-page-figure').clientWidth > w - 140", arg=before["width"]
    )
    page.evaluate("scrollTo(0, 0)")
    at = line.bounding_box()
    assert at
    page.mouse.dblclick(at["x"] + 12, 300)
    page.wait_for_function(
        "w => Math.abs(document.querySelector('.st-key-page-figure').clientWidth - w) < 2", arg=before["width"]
    )


def test_both_layers_of_the_editor_break_lines_at_the_same_places(page: Page, app_url: str):
    editor = visit(page, f"{app_url}/autograd_graph")
    type_program(
        page,
        editor,
        "long_name = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True) + 'and a text that goes on' # done\nx = 1\n",
    )
    heights = page.evaluate(
        """() => { const find = (root, s) => { const hit = root.querySelector(s); if (hit) return hit
             for (const e of root.querySelectorAll('*')) if (e.shadowRoot) { const h = find(e.shadowRoot, s); if (h) return h } }
             return [find(document, 'textarea[aria-label^=Program]').scrollHeight, find(document, '.ink').scrollHeight] }"""
    )
    assert abs(heights[0] - heights[1]) <= 2


def test_presenter_mode_hides_the_controls_and_is_in_the_address(page: Page, app_url: str):
    editor = visit(page, f"{app_url}/autograd_graph")
    expect(picture(page).first).to_be_visible()
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    expect(page.get_by_role("button", name="Present")).to_be_visible()
    page.mouse.click(900, 20)
    page.keyboard.press("p")
    page.wait_for_url(re.compile("present=1"))
    expect(editor).not_to_be_visible()
    expect(page.get_by_test_id("stHeader")).not_to_be_visible()
    size = page.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)")
    assert size >= 20  # read from the last row, also on a projector with 720 lines
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    expect(editor).to_be_visible()
    page.wait_for_url(lambda url: "present" not in url)  # the address follows the page


@pytest.mark.parametrize("address", ["/", "/autograd_graph"])
def test_a_narrow_screen_needs_no_sideways_scrolling(page: Page, app_url: str, address: str):
    page.set_viewport_size({"width": 420, "height": 900})
    page.goto(f"{app_url}{address}")
    expect(page.locator("h1")).to_be_visible()
    if address != "/":
        settle(page)
        expect(page.locator(".figure .node").first).to_be_visible()
    page.wait_for_function("document.documentElement.scrollWidth <= 420")
    overflow = page.evaluate(
        """() => {
          const scrolls = e => e && e !== document.body && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX)
            && e.dataset.testid !== "stMain" || scrolls(e.parentElement))
          return [...document.querySelectorAll("[data-testid=stMain] *")]
            .filter(e => e.getBoundingClientRect().right > 421 && !scrolls(e.parentElement)).map(e => e.outerHTML.slice(0, 200))
        }"""
    )
    assert not overflow


def test_another_host_would_be_noticed():
    assert _is_foreign("https://fonts.example.com/a.woff2", "http://127.0.0.1:8501")
    assert not _is_foreign("http://127.0.0.1:8501/static/a.js", "http://127.0.0.1:8501")
