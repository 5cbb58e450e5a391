"""What a visitor's program printed and warned about, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

TALLEST_PX = 260


def program_output(printed: str, echo: str, warned: Sequence[Mapping[str, Any]]) -> None:
    """Draw what a run printed, the value of its last line, and its warnings (``text``, ``line``); nothing for none."""
    for title, text in (("Printed", printed), ("Value of the last line", echo)):
        if text:
            st.markdown(f"**{title}**")
            tall = text.count("\n") > 10
            st.code(text.rstrip("\n"), language=None, wrap_lines=True, height=TALLEST_PX if tall else "content")
    for warning in warned:
        place = f"line {warning['line']}: " if warning["line"] else ""
        st.text(f"Warning, {place}{warning['text']}")
