"""The memory page: every view shows its number, a view change runs nothing again, own programs and faults."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, run, until

PAGE = "memory_timeline.py"
SMALL = {"mt_model": "mlp", "mt_layers": "2", "mt_width": "32", "mt_optimizer": "sgd"}


def small() -> AppTest:
    return until(opened(PAGE, **SMALL), measured)


def texts(at: AppTest) -> str:
    return " ".join(e.value for e in (*at.markdown, *at.text, *at.caption))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("timeline", "most of it"),
        ("settings", "one step"),
        ("saved", "Distinct storages that only autograd keeps"),
        ("fit", "fits on a card with 24.00 GiB"),
        ("oom", "asked for"),
    ],
)
def test_a_view_shows_its_number(view, words):
    at = small()
    ran = [e.value for e in at.text if e.value.startswith("Ran in")]
    at.session_state["mt-view"] = view
    run(at)
    assert words in texts(at)
    assert [e.value for e in at.text if e.value.startswith("Ran in")] == ran


def test_without_a_gpu_the_page_says_what_it_cannot_measure():
    assert "No CUDA device" in texts(small())
