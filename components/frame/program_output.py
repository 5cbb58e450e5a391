"""What a visitor's program printed and warned about, as plain text."""

from __future__ import annotations

import streamlit as st

from lab.records.program import Said

TALLEST_PX = 260


def program_output(said: Said) -> None:
    """Draw what a run printed, the value of its last line, and its warnings; nothing for none."""
    for title, text in (("Printed", said.printed), ("Value of the last line", said.echo)):
        if text:
            st.markdown(f"**{title}**")
            tall = text.count("\n") > 10
            st.code(text.rstrip("\n"), language=None, wrap_lines=True, height=TALLEST_PX if tall else "content")
    for warning in said.warned:
        place = f"line {warning.line}: " if warning.line else ""
        st.text(f"Warning, {place}{warning.text}")
