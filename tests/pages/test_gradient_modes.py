"""The page on gradient modes: the default fault with its birth line, the other views, and a preset."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, until

PAGE = "gradient_modes.py"


def shown(at: AppTest) -> str:
    return " | ".join(str(element.value) for element in (*at.markdown, *at.caption, *at.text, *at.error))


def drawn(at: AppTest, words: str) -> AppTest:
    return until(at, lambda at: measured(at) and words in shown(at))


def test_the_default_names_the_line_of_birth():
    at = drawn(opened(PAGE), "was born on line 6")
    table = next(frame.value for frame in at.dataframe if "operations before" in frame.value.columns)
    assert set(table["to"]) == {"inference", "grad"}


def test_the_modes_are_measured():
    at = drawn(opened(PAGE, gm_view="matrix"), "One operation in each mode")
    table = at.table[0].value
    assert table.loc["no_grad", "backward reaches the leaf"] == "no"
    assert "32.00 KiB" in table.loc["grad", "kept for backward"]


def test_uses_show_message_and_program():
    at = drawn(opened(PAGE, gm_view="uses"), "times a parameter, inference")
    assert "cannot be saved for backward" in shown(at)
    assert "torch.inference_mode()" in at.code[-1].value or any("inference_mode" in c.value for c in at.code)


def test_a_leaking_generator_is_named():
    drawn(opened(PAGE, gm_preset="a-generator-inside-no-grad"), "suspended generator")
