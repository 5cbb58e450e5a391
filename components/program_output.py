"""What a visitor's program printed and warned about, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

TALLEST_PX = 260


def program_output(printed: str, warned: Sequence[Mapping[str, Any]]) -> None:
    """Draw the printed text and the warnings (``text``, ``line``) of a run; nothing when there are none."""
    if printed:
        tall = printed.count("\n") > 10
        st.markdown("**Printed**")
        st.code(printed, language=None, wrap_lines=True, height=TALLEST_PX if tall else "content")
    for warning in warned:
        place = f"line {warning['line']}: " if warning["line"] else ""
        st.text(f"Warning, {place}{warning['text']}")
