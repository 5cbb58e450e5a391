"""The look of every page, beyond what the theme can say. Constant text: nothing of a visitor goes in."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from components.frame.page_bar import presenting

_HERE = Path(__file__).parent
_PAGE, _PRESENTER = ((_HERE / f"{name}.css").read_text() for name in ("page", "presenter"))
_DIMMED = ".st-key-page-figure, .st-key-page-details, .st-key-page-aside, .st-key-page-findings { opacity: 0.45; }"


def page_style() -> None:
    """Call it first on a page: the browser loads the rest meanwhile."""
    st.html(f"<style>{_PAGE}{_PRESENTER if presenting() else ''}</style>")


def dim(old: bool) -> None:
    """``old``: the newest run is not what the figure shows."""
    st.html(f"<style>{_DIMMED if old else ''}</style>")
