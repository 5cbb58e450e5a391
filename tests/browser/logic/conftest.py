"""The modules of the figures in Chromium: imported as they are written, their functions called with values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

ROOT = Path(__file__).resolve().parents[3]
HOST = "http://modules.invalid"

Call = Callable[..., Any]


@pytest.fixture(scope="session")
def module_page(browser: Browser) -> Iterator[Page]:
    """A blank page whose host is the repository; nothing leaves the machine."""
    page = browser.new_page()

    def answer(route: Route) -> None:
        path = ROOT / route.request.url.removeprefix(f"{HOST}/")
        if path.suffix == ".js":
            route.fulfill(body=path.read_text(encoding="utf-8"), content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html><title>modules</title>", content_type="text/html")

    page.route("**/*", answer)
    page.goto(f"{HOST}/blank")
    yield page
    page.close()


@pytest.fixture
def call(module_page: Page) -> Call:
    """``call(path, code, *values)``: the value of ``code`` where ``m`` is the module and ``v`` the list of values."""

    def evaluate(path: str, code: str, *values: Any) -> Any:
        return module_page.evaluate(
            "async ([path, code, v]) => new Function('m', 'v', `return (${code})`)(await import(path), v)",
            [f"{HOST}/{path}", code, list(values)],
        )

    return evaluate
