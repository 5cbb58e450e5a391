"""Every page of the navigation opens from Home.py and shows a complete result; every floor knows the same pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from components.navigation import LAB, PAGES, START, tab_title

ROOT = Path(__file__).resolve().parents[2]
STEMS = sorted(page.stem for page in PAGES)


def opened(page: str, **query: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "lab/Home.py"), default_timeout=60)
    at.run()
    at.switch_page(f"../pages/{page}")
    for name, value in query.items():
        at.query_params[name.replace("_", "-")] = value
    return run(at)


def run(at: AppTest) -> AppTest:
    at.run()
    assert not at.exception
    return at


def until(at: AppTest, true: Callable[[AppTest], bool], seconds: float = 60) -> AppTest:
    """Run again until ``true`` holds: a cold worker may need longer than one script run waits."""
    end = time.monotonic() + seconds
    while not true(at):
        assert time.monotonic() < end, [element.value for element in (*at.text, *at.warning)]
        time.sleep(0.1)
        run(at)
    return at


def measured(at: AppTest) -> bool:
    return any(element.value.startswith("Ran in") for element in at.text)


@pytest.mark.parametrize("page", [page.script.name for page in PAGES])
def test_the_page_measures_before_anything_is_touched(page):
    at = until(opened(page), measured)
    assert at.title
    assert not at.warning
    assert any("torch 2." in element.value for element in at.caption)


def test_a_page_that_is_not_in_the_navigation_does_not_open():
    with pytest.raises(ValueError, match="Home"):
        opened("../lab/Home.py")


def test_every_floor_knows_the_same_pages():
    def stems(folder: str, pattern: str) -> set[str]:
        return {path.stem.removeprefix("test_") for path in (ROOT / folder).glob(pattern) if path.name[0] not in "._"}

    pages = set(STEMS)
    assert stems("pages", "*.py") == {"home", *pages}
    assert stems("tests/pages", "test_*.py") == {"every_page", *pages}
    assert stems("lab/experiments", "*") == stems("tests/lab/experiments", "*") - {"conftest"} == pages
    assert {path.parent.name for path in (ROOT / "components").glob("*/__init__.py")} == {"frame", "kit", *pages}
    assert len({page.prefix for page in PAGES}) == len(PAGES)
    assert not any("prefix" in page.script.read_text(encoding="utf-8") for page in PAGES)


def test_a_tab_says_which_page_it_shows():
    assert tab_title("Gradient flow") == f"Gradient flow · {LAB}"
    assert tab_title(START) == LAB


def test_home_says_on_which_device_it_runs():
    at = opened("home.py")
    assert any("cores" in element.value and "torch" in element.value for element in at.caption)
