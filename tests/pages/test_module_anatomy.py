"""The page on modules: views, presets, what is not registered, and a program of a visitor."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, run, until

PAGE = "module_anatomy.py"


def texts(at: AppTest) -> str:
    return " | ".join(element.value for element in (*at.markdown, *at.caption, *at.text, *at.info))


def drawn(at: AppTest, words: str) -> AppTest:
    return until(at, lambda at: measured(at) and words in texts(at))


def controls(at: AppTest) -> set[str]:
    every = (*at.selectbox, *at.slider, *at.number_input, *at.toggle, *at.button_group)
    return {(element.key or "").removeprefix("ma-") for element in every}


def test_the_default_names_what_is_not_registered_and_offers_a_tested_repair():
    at = drawn(opened(PAGE), "attention.heads: 2 modules, not registered")
    assert any("+         self.heads = nn.ModuleList(" in block.value for block in at.code)
    assert {"view", "action"} <= controls(at)
    assert not {"call", "hook_kinds", "file", "strict", "assign"} & controls(at)
    table = next(frame.value for frame in at.dataframe if "moves" in frame.value.columns)
    assert len(table) == 16


def test_each_view_has_its_controls_and_its_table():
    at = drawn(opened(PAGE), "not registered")
    at.button_group(key="ma-view").set_value("hooks")
    drawn(run(at), "changes what goes on")
    assert {"call", "hook_kinds"} <= controls(at)
    assert "action" not in controls(at)
    at.button_group(key="ma-view").set_value("state dict")
    drawn(run(at), "All 9 tensors were loaded")
    assert {"file", "strict", "assign"} <= controls(at)
    at.selectbox(key="ma-file").set_value("with a prefix")
    drawn(run(at), "Refused, and nothing is changed")


def test_a_preset_shows_its_number():
    at = drawn(opened(PAGE, ma_preset="a-size-mismatch"), "Refused, and 1 of 4 tensors are changed")
    assert any("mismatched" in frame.value.to_string() for frame in at.dataframe)


def test_a_program_that_ends_early_names_the_list():
    at = drawn(opened(PAGE, ma_preset="a-list-of-layers"), "layers: 3 modules, not registered")
    assert any("Put them into nn.ModuleList." in element.value for element in at.text)
