"""Every page of the navigation opens from Home.py and shows a complete result."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.name for path in (ROOT / "pages").glob("*.py"))
EXPERIMENTS = [name for name in PAGES if name != "home.py"]


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


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_in_the_navigation_and_has_a_title(page):
    assert opened(page).title


@pytest.mark.parametrize("page", EXPERIMENTS)
def test_the_page_measures_before_anything_is_touched(page):
    at = until(opened(page), measured)
    assert not at.warning
    assert any("torch 2." in element.value for element in at.caption)


def test_a_page_that_is_not_in_the_navigation_does_not_open():
    with pytest.raises(ValueError, match="Home"):
        opened("../lab/Home.py")


def test_home_says_on_which_device_it_runs():
    at = opened("home.py")
    assert any("cores" in element.value and "torch" in element.value for element in at.caption)
