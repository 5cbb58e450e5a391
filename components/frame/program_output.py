"""What a visitor's program printed and warned about, as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

TALLEST_PX = 260


def program_output(result: Mapping[str, Any]) -> None:
    """Draw what a run printed, the value of its last line, and its warnings; nothing for none.

    ``result``: a Result in wire form, which has the fields of ``lab.records.program.Said``.
    """
    for title, text in (("Printed", result["printed"]), ("Value of the last line", result["echo"])):
        if text:
            st.markdown(f"**{title}**")
            tall = text.count("\n") > 10
            st.code(text.rstrip("\n"), language=None, wrap_lines=True, height=TALLEST_PX if tall else "content")
    for warning in result["warned"]:
        place = f"line {warning['line']}: " if warning["line"] else ""
        st.text(f"Warning, {place}{warning['text']}")
