"""The page on gradient flow: views, presets, a model of one's own, a repair by one click."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, run, until

PAGE = "gradient_flow.py"


def texts(at: AppTest) -> str:
    return "\n".join(element.value for kind in (at.markdown, at.caption, at.text) for element in kind)


def table(at: AppTest, column: str) -> list[dict]:
    return next(frame.value for frame in at.dataframe if column in frame.value.columns).to_dict("records")


def test_the_default_shows_headline_and_tables():
    at = until(opened(PAGE), measured)
    said = texts(at)
    assert "#### 1.04e−07" in said
    assert "χ = 0.331" in said
    assert "mean over 64 samples" in said
    assert len(table(at, "activation_grad_norm")) == 31
    assert len(table(at, "norm_before")) == 20


@pytest.mark.parametrize(
    ("view", "words"),
    [("Training", "3.03 → "), ("Shares", "Zero in fp16"), ("Clipping", "10.1 → 1"), ("Depth", "Decades per layer")],
)
def test_each_view_opens(view, words):
    at = until(opened(PAGE, gf_preset="clipping-hides-a-bad-learning-rate"), measured)
    at.button_group(key="gf-view").set_value(view)
    run(at)
    assert words in texts(at)


def test_a_repair_is_one_click():
    at = until(opened(PAGE), measured)
    next(button for button in at.button if button.label == "Set init = xavier").click()
    run(at)
    until(at, lambda at: "The gradient keeps its size" in texts(at))
    assert at.query_params["gf-init"] in ("xavier", ["xavier"])


def test_ones_own_model_asks_for_a_program():
    at = until(opened(PAGE, gf_family="own"), measured)
    assert any("There is no program yet" in block.value for block in at.code)
    assert not at.dataframe


def test_a_result_that_is_not_finite_is_shown():
    at = until(opened(PAGE, gf_preset="one-infinite-gradient"), measured)
    layers = {row["name"]: row for row in table(at, "clipped_grad_norm")}
    assert layers["layer 5"]["clipped_grad_norm"] == "NaN"
    assert layers["layer 1"]["clipped_grad_norm"] == "0"
