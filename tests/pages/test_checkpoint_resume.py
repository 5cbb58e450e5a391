"""The page on stopping and going on: each view, a preset, and a program of one's own."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, until

PAGE = "checkpoint_resume.py"


def shown(at: AppTest) -> str:
    return " | ".join(str(element.value) for element in (*at.markdown, *at.caption, *at.text, *at.error))


def drawn(at: AppTest, words: str) -> AppTest:
    return until(at, lambda at: measured(at) and words in shown(at))


def test_the_default_tells_that_the_first_loss_is_equal():
    at = drawn(opened(PAGE), "Each part left out in turn")
    assert "Without the optimizer's state the first loss is equal" in shown(at)
    rows = next(frame.value for frame in at.dataframe if "first gap" in frame.value.columns)
    assert len(rows) == 12


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"cr_view": "file"}, "A view is saved with its whole storage"), ({"cr_view": "keys"}, "0 of 11 tensors were loaded"),
        ({"cr_view": "loading"}, "10 of 17 kinds of object are refused"), ({"cr_view": "program"}, "parts did not come back"),
        ({"cr_preset": "built-after-loading"}, "Building the schedule set the rate back"),
        ({"cr_preset": "the-statistics-of-batchnorm"}, "no training loss differs, evaluation does"),
    ],
)  # fmt: skip
def test_a_view_says_its_point(query: dict[str, str], words: str):
    drawn(opened(PAGE, **query), words)
