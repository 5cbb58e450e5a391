"""The page on transfers: each view says its point."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, until

PAGE = "transfers.py"


def shown(at: AppTest) -> str:
    return " | ".join(str(element.value) for element in (*at.markdown, *at.caption, *at.text, *at.error, *at.info))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "wait for a GPU 60 times, 3 a step"), ({"tr_preset": "where-instead-of-an-index"}, "No line waits"),
        ({"tr_view": "copies"}, "Copies by size"), ({"tr_view": "overlap"}, "What pinning and non_blocking do here"),
    ],
)  # fmt: skip
def test_a_view_says_its_point(query: dict[str, str], words: str):
    if query.get("tr_view") == "overlap":
        words = "needs a CUDA device" if not _has_cuda() else "hidden"
    until(opened(PAGE, **query), lambda at: measured(at) and words in shown(at))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
