"""The graph picture in Chromium: stepping, linking, folding, searching, the file, keys."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import AtRest, saved_files

ROOT = Path(__file__).resolve().parents[2]
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def figure_url() -> Iterator[str]:
    """Address of a server that shows tests/browser/graph_page.py."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "tests/browser/graph_page.py", f"--server.port={port}"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen([*command, "--server.headless=true"], cwd=ROOT, env=env, stdout=log, stderr=log) as server,
    ):
        try:
            _wait(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(20)


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise AssertionError("the server did not answer within 60 s")


@pytest.fixture
def figure(browser: Browser, figure_url: str) -> Iterator[Open]:
    """Opens the figure of a case. The test fails for a console error or a request to another host."""
    context = browser.new_context()
    page, faults = context.new_page(), []
    page.set_default_timeout(20_000)
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request", lambda r: None if figure_url[7:] in r.url or r.url[:4] in ("data", "blob") else faults.append(r.url)
    )

    def show(case: str, width: int = 1440, height: int = 900, **query: str) -> Page:
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"{figure_url}/?case={quote(case)}" + "".join(f"&{k}={v}" for k, v in query.items()))
        expect(page.locator(".figure :is(.node, .message:not(:empty))").first).to_be_visible()
        return page

    yield show
    context.close()
    assert faults == []


def node(page: Page, title: str) -> str:
    """Selector of the node with this title."""
    return f'.node:has(.title tspan:text-is("{title}"))'


def inner_text(page: Page, selector: str) -> str:
    return re.sub(r"\s+", " ", page.locator(selector).first.text_content() or "").strip()


def test_the_pass_is_walked_by_keyboard_to_its_last_step(figure: Open) -> None:
    page = figure("used twice")
    expect(page.locator(".position")).to_have_text("6 steps")
    page.locator(".stage").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".position")).to_have_text("step 1 of 6")
    expect(page.locator(f"{node(page, 'loss = sum')}.now")).to_have_count(1)
    assert "hands 1.0 1.0 to add" in inner_text(page, ".note")
    page.keyboard.press("ArrowRight")
    assert inner_text(page, ".sum") == "so far 1.0 1.0"
    assert [re.sub(r"\s+", " ", t) for t in page.locator(".handed text").all_text_contents()] == ["1.0 1.0"] * 2
    page.keyboard.press("End")
    expect(page.locator(".position")).to_have_text("step 6 of 6")
    expect(page.locator(".node .tag.freed")).to_have_count(3)
    assert ".grad was None and becomes" in inner_text(page, ".note")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".position")).to_have_text("step 6 of 6")
    page.keyboard.press("Home")
    expect(page.locator(".node .tag.kept")).to_have_count(3)
    page.keyboard.press(" ")
    expect(page.locator(".position")).to_have_text(re.compile("step [2-5] of 6"))  # a second a step: one may be missed
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    position = page.locator(".position").text_content()
    page.wait_for_timeout(1300)
    assert page.locator(".position").text_content() == position


def test_lines_and_nodes_mark_each_other(figure: Open) -> None:
    page = figure("used twice")
    page.get_by_role("button", name="Show the program").click()
    page.locator(node(page, "h = sigmoid")).click()
    expect(page.locator('.row[data-line="3"].marked')).to_have_count(1)
    assert "SigmoidBackward0" in inner_text(page, ".details")
    page.keyboard.press("Escape")
    expect(page.locator(".details")).to_be_hidden()
    page.locator('.row[data-line="4"]').click()
    lit = page.locator(".is-lining .title").all_text_contents()
    assert sorted(lit) == ["add", "loss = sum"]


def test_hover_shows_the_way_to_the_loss_even_where_paths_are_2_to_the_30(figure: Open) -> None:
    page = figure("doubling")
    page.locator(".stage").focus()
    page.keyboard.press("f")
    page.locator(".node.kind-leaf").hover()
    expect(page.locator(".node.onpath")).to_have_count(31)
    expect(page.locator(".edge.onpath")).to_have_count(60)


def test_a_changed_tensor_and_the_error_are_shown_at_their_lines(figure: Open) -> None:
    page = figure("in-place")
    assert "modified by an inplace operation" in inner_text(page, ".row.faulty")
    expect(page.locator('.row.faulty[data-line="5"]')).to_have_count(1)
    assert inner_text(page, ".node .tag.changed") == "result: saved v0, now v1 (line 3)"
    page.locator(node(page, "sigmoid")).hover()
    expect(page.locator('.row.changing[data-line="3"]')).to_have_count(1)


def test_boxes_open_and_close_and_the_step_survives(figure: Open, at_rest: AtRest) -> None:
    page = figure("transformer")
    assert page.locator(".node").count() < 60
    blocks = page.locator(node(page, "12 × TransformerEncoderLayer"))
    expect(blocks.locator(".bar")).to_have_count(12)
    page.locator(".stage").focus()
    page.keyboard.press("/")
    page.keyboard.type("12 ×")
    expect(page.locator(".found")).to_contain_text("1 of 1")
    page.keyboard.press("Escape")
    blocks.click()
    expect(page.locator(node(page, "1.layers.11"))).to_have_count(1)
    page.locator(".stage").focus()
    page.keyboard.press("/")
    page.keyboard.type("layers.11")
    expect(page.locator(".found")).to_contain_text("1 of 1")
    page.keyboard.press("Escape")
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    lit = page.locator(".node.now .title").text_content()
    box = page.locator(node(page, "1.layers.11"))
    before = at_rest(box)
    box.click()
    frame = page.locator('.frame:has-text("1.layers.11 ")')
    expect(frame).to_have_count(1)
    expect(page.locator(node(page, "1.layers.11.self_attn"))).to_have_count(1)
    after = at_rest(frame)
    assert abs(before["x"] + before["width"] / 2 - after["x"] - after["width"] / 2) < 60
    assert page.locator(".node.now .title").text_content() == lit or "11" in (lit or "")
    frame.locator(".handle").click()
    expect(page.locator(node(page, "1.layers.11"))).to_have_count(1)


def test_twenty_thousand_nodes_are_one_box_and_open_level_by_level(figure: Open) -> None:
    page = figure("chain")
    expect(page.locator(".node")).to_have_count(4)
    for title in ("10,000 × (mul, add)", "rounds 1–334", "rounds 1–18", "round 2"):
        page.locator(node(page, title)).click()
        expect(page.locator(f'.frame:has-text("{title}")')).to_have_count(1)
    assert page.locator(".node").count() < 120


def test_zoom_and_step_survive_new_values_but_not_a_new_program(figure: Open) -> None:
    page = figure("used twice")
    page.locator(".stage").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    page.wait_for_timeout(400)
    before = page.locator(".world").get_attribute("style")
    page.get_by_role("button", name="Run again").click()
    expect(page.locator(f"{node(page, 'mul')} .value")).to_have_text("7.0")
    assert page.locator(".world").get_attribute("style") == before
    expect(page.locator(".position")).to_have_text("step 1 of 6")


def test_passes_are_chosen(figure: Open) -> None:
    page = figure("double backward")
    expect(page.locator(".passes")).to_be_visible()
    titles = page.locator(".node .title").all_text_contents()
    page.locator(".passes").select_option(index=0)
    expect(page.locator(".node .title")).not_to_have_text(titles)
    assert "torch.autograd.grad" in (page.locator(".passes option:checked").text_content() or "")


def test_the_picture_is_a_file_that_stands_alone(figure: Open) -> None:
    page = figure("used twice")
    text, _ = saved_files(page, "autograd-graph")
    root = ElementTree.fromstring(text)
    words = " ".join(root.itertext())
    assert all(word in words for word in ("sigmoid", "loss = ", "kept for backward", "6 nodes"))
    assert "var(" not in text
    assert "class=" not in text
    assert not re.search(r"(href|url\()", text)


def test_a_program_without_a_graph_says_why(figure: Open) -> None:
    page = figure("no graph")
    expect(page.locator(".message")).to_contain_text("no tensor of the program requires gradients")
    expect(page.locator(".node")).to_have_count(0)


@pytest.mark.parametrize("width", [420, 1440])
def test_nothing_is_cut_and_the_height_is_fixed(figure: Open, at_rest: AtRest, width: int) -> None:
    page = figure("used twice", width=width)
    box = at_rest(page.locator(".figure"))
    assert box["height"] == pytest.approx(640, abs=1)
    for part in page.locator(".figure :is(.tool, .slider, .position, .heading, .stage, .note)").all():
        if part.is_visible():
            inside = part.bounding_box()
            assert inside
            assert inside["x"] >= box["x"] - 1
            assert inside["x"] + inside["width"] <= box["x"] + box["width"] + 1
    for card in page.locator(".node").all():
        outline = card.locator(".body").bounding_box()
        assert outline
        for text in card.locator("text").all():
            inside = text.bounding_box()
            assert inside is None or inside["x"] + inside["width"] <= outline["x"] + outline["width"] + 1


def test_presenter_mode_hears_keys_without_focus_and_fills_the_window(figure: Open, at_rest: AtRest) -> None:
    page = figure("used twice", width=1920, height=1080, present="1")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".position")).to_have_text("step 1 of 6")
    at_rest(page.locator(".figure"), lambda box: box["height"] > 900)


def test_the_figure_has_words_for_those_who_cannot_see_it(figure: Open) -> None:
    page = figure("used twice")
    label = page.locator(".stage").get_attribute("aria-label") or ""
    assert "6 nodes" in label
    assert "Leaves:" in label
    assert page.locator(".figure button:not([aria-label])").count() == 0
    assert "gradient 1.0" in (page.locator(node(page, "add")).get_attribute("aria-label") or "")
