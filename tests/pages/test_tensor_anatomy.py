"""The page on tensors: views, presets, an own program, and a fault with its cause."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.pages.test_every_page import measured, opened, run, until

PAGE = "tensor_anatomy.py"


def shown(at: AppTest) -> str:
    return " | ".join(element.value for element in (*at.markdown, *at.caption, *at.text))


def drawn(at: AppTest, words: str) -> AppTest:
    return until(at, lambda at: measured(at) and words in shown(at))


def test_the_default_says_names_pieces_and_bytes():
    at = drawn(opened(PAGE), "5 names, 3 pieces of memory, 48 B copied")
    table = next(frame.value for frame in at.dataframe if "shares with" in frame.value.columns)
    assert list(table["kind"]) == ["new memory", "view", "view", "view", "new memory", "in place", "new memory"]


def test_another_view_brings_its_controls():
    at = drawn(opened(PAGE), "copied")
    at.button_group(key="ta-view").set_value("promotion")
    drawn(run(at), "Three tiers")
    keys = {element.key for element in (*at.selectbox, *at.number_input)}
    assert {"ta-dtype_a", "ta-dtype_b"} <= keys
    assert "ta-inner" not in keys


def test_every_panel_draws():
    for view, words in {
        "precision": "one sum, in several orders",
        "numpy": "ways into torch",
        "devices": "torch.accelerator",
        "data": "layout",
        "memory": "names",
    }.items():
        at = until(opened(PAGE, ta_view=view), measured)
        assert words in shown(at).lower() or any(words in element.value for element in at.text), view


def test_a_refused_view_is_explained():
    at = drawn(opened(PAGE, ta_preset="view-after-a-transpose"), "no neighbours in memory")
    assert any("no neighbours" in str(table.value.to_dict()) for table in at.table)
