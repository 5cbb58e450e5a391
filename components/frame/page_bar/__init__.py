"""The row of page-wide controls: present, copy the link, keys. Also listens for their keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st
from streamlit.components.v2 import component

from components.kit.modules import script

_HERE = Path(__file__).parent
_BAR = component(
    "lab_page_bar",
    html=(_HERE / "bar.html").read_text(),
    css=(_HERE / "bar.css").read_text(),
    js=script(_HERE / "bar.js"),
)
KEYS = {"p": "presenter mode on or off", "?": "this list", "Ctrl+Enter": "run the program (in the editor)"}


PRESENTING = "presenting"
"""Session entry: presenter mode is on, on every page."""


def page_bar(key: str, *, link_left_out: str, heard: int, at: str, lesson: str, keys: Mapping[str, str]) -> None:
    """``keys``: what the page's figure listens for. ``link_left_out``: why the link does not hold the whole state.
    ``heard``: serial of the newest text from the editor that the address holds. ``at``: query parameter of the step.
    ``lesson``: address of the lesson that is shown, which the browser remembers as seen."""
    _BAR(
        key=key,
        data={
            "presenting": presenting(),
            "leftOut": link_left_out,
            "heard": heard,
            "at": at,
            "lesson": lesson,
            "keys": [*KEYS.items(), *keys.items()],
        },
        on_present_change=lambda: _take_over(key),
    )


def presenting() -> bool:
    return bool(st.session_state.get(PRESENTING))


def _take_over(key: str) -> None:
    st.session_state[PRESENTING] = bool(st.session_state[key].get("present"))
