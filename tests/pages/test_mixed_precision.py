"""The page on mixed precision: each view says its point."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, until

PAGE = "mixed_precision.py"


def shown(at: AppTest) -> str:
    return " | ".join(str(element.value) for element in (*at.markdown, *at.caption, *at.text, *at.error))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "A real fp16 backward loses 12.2% of the gradients"), ({"mp_preset": "one-bad-batch"}, "1 of 20 steps were skipped"),
        ({"mp_view": "ops"}, "Gradients are clipped while they are scaled"), ({"mp_view": "updates"}, "6.4% of the bf16 weights move"),
        ({"mp_view": "matmul"}, "Sums of 1024 in bf16"),
    ],
)  # fmt: skip
def test_a_view_says_its_point(query: dict[str, str], words: str):
    until(opened(PAGE, **query), lambda at: measured(at) and words in shown(at))
