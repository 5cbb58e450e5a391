"""Headline numbers above a figure: name, value, and what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

Metric = tuple[str, str, str]
"""Name, value, and what it is compared with."""


def headline(numbers: Sequence[Metric], key: str, *, presenting: bool, short: bool = False) -> None:
    """A row of numbers. Before a group one line, so that the figure has the room; ``short``: without the comparison."""
    with st.container(horizontal=True, key=f"{key}-headline", gap="small" if presenting else "large"):
        for name, value, against in numbers:
            with st.container(
                width="content",
                gap="xxsmall" if presenting else None,
                horizontal=presenting,
                vertical_alignment="bottom",
            ):
                st.caption(name)
                st.markdown(f"**{value}**" if presenting else f"#### {value}")
                if not short and not presenting:
                    st.caption(against)
