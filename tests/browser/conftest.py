"""One Streamlit server and one Chromium for all browser tests; each test gets a page that records what went wrong."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, FloatRect, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
OFFLINE = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

AtRest = Callable[..., FloatRect]

expect.set_options(timeout=60_000)  # the first page waits for the first import of torch


@pytest.fixture(scope="session")
def app_url() -> Iterator[str]:
    """Address of the running lab, without a slash at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "lab/Home.py",
        "--server.address=127.0.0.1",
        f"--server.port={port}",
    ]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT) as server,
    ):
        try:
            _wait_until_healthy(url, server)
            yield url
        finally:
            server.terminate()
            server.wait(20)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "no Chromium on PATH: install the package chromium"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=OFFLINE)
        yield launched
        launched.close()


@pytest.fixture
def at_rest() -> AtRest:
    """The bounding box of an element once it has stopped moving: styles and layouts come a moment after the content.

    ``fits``: what must hold in the end; on a busy machine a style may come later than a short rest.
    """

    def measure(element: Locator, fits: Callable[[FloatRect], bool] = lambda box: True) -> FloatRect:
        end, before = time.monotonic() + 40, None
        while time.monotonic() < end:
            box = element.bounding_box()
            if box and box == before and fits(box):
                return box
            before = box
            time.sleep(0.4)
        raise AssertionError(f"{element} came to rest at {before}")

    return measure


@pytest.fixture
def page(browser: Browser, app_url: str) -> Iterator[Page]:
    """A fresh 1440x900 visit. Fails the test for a console error or a request to another host."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=app_url)
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    faults: list[str] = []
    opened.on("console", lambda message: faults.append(message.text) if _is_fault(message) else None)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("request", lambda request: faults.append(request.url) if _is_foreign(request.url, app_url) else None)
    yield opened
    context.close()
    assert not faults


def settle(page: Page) -> None:
    """Wait until the run is over and the page has drawn its result: what is drawn before may be replaced."""
    expect(page.get_by_text(re.compile("^Ran in"))).to_be_visible(timeout=90_000)
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def saved_files(page: Page, name: str) -> tuple[str, bytes]:
    """The SVG and the PNG that the figure's buttons save, under this name."""
    contents = []
    for kind in ("SVG", "PNG"):
        with page.expect_download() as download:
            page.locator(f'button[title="Download as {kind}"]').click()
        assert download.value.suggested_filename == f"{name}.{kind.lower()}"
        contents.append(Path(download.value.path()).read_bytes())
    svg = contents[0].decode("utf-8")
    assert "var(" not in svg
    assert "<image" not in svg
    assert contents[1].startswith(b"\x89PNG")
    return svg, contents[1]


def _is_foreign(url: str, app_url: str) -> bool:
    return not url.startswith((f"{app_url}/", app_url.replace("http", "ws", 1), "data:", "blob:", "about:"))


def _is_fault(message: ConsoleMessage) -> bool:
    """An error, except Streamlit's own look for its base path: it asks below the page's address first and gets a 404."""
    probes = ("/_stcore/health", "/_stcore/host-config")
    return message.type == "error" and not message.location["url"].endswith(probes)


def _wait_until_healthy(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise AssertionError("the server did not answer within 60 s")
