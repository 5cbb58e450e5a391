"""The page on serving: each view says its point."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, until

PAGE = "serving_skew.py"


def shown(at: AppTest) -> str:
    return " | ".join(str(element.value) for element in (*at.markdown, *at.caption, *at.text, *at.error))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "The paths part at module bn"), ({"sk_view": "power"}, "17 of 17 departures show in the values, 10 change a name"),
        ({"sk_preset": "older-customers"}, "Live rows have moved: age by +1.44"), ({"sk_view": "own"}, "The paths part at normalised"),
        ({"sk_skew": "none"}, "The paths agree on 64 rows"),
    ],
)  # fmt: skip
def test_a_view_says_its_point(query: dict[str, str], words: str):
    until(opened(PAGE, **query), lambda at: measured(at) and words in shown(at))
