"""The page on reproducibility: each view says its point."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, until

PAGE = "reproducibility.py"


def shown(at: AppTest) -> str:
    return " | ".join(str(element.value) for element in (*at.markdown, *at.caption, *at.text, *at.error))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"rp_preset": "one-draw-more"}, "They part at bernoulli in step 3 forward"), ({"rp_preset": "a-loop-that-only-reads"}, "Iterating on line 5 draws"),
        ({"rp_preset": "checkpointing"}, "Every operation that both have gives the same bits"), ({"rp_view": "levels"}, "the same curve"),
        ({"rp_view": "sources"}, "sources are not pinned here"),
    ],
)  # fmt: skip
def test_a_view_says_its_point(query: dict[str, str], words: str):
    until(opened(PAGE, **query), lambda at: measured(at) and words in shown(at))
