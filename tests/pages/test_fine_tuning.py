"""The page on fine-tuning: each view says its point."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, until

PAGE = "fine_tuning.py"


def shown(at: AppTest) -> str:
    return " | ".join(str(element.value) for element in (*at.markdown, *at.caption, *at.text, *at.error))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "The optimizer holds the old head and not the new one"), ({"ft_view": "midway"}, "Frozen weights moved by 0.83"),
        ({"ft_view": "lora"}, "only one factor has a gradient"), ({"ft_view": "own"}, "The optimizer holds what is no longer in the model"),
        ({"ft_preset": "a-frozen-backbone"}, "frozen, and its running statistics moved"), ({"ft_view": "share"}, "Far task, 16 rows"),
    ],
)  # fmt: skip
def test_a_view_says_its_point(query: dict[str, str], words: str):
    until(opened(PAGE, **query), lambda at: measured(at) and words in shown(at))
