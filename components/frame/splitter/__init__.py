"""The line between the controls and the figure: dragged, or moved with the arrow keys, it shares out the width.

The width is the visitor's own: it stays in this browser, for all pages, and is no part of a link.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.components.v2 import component

from components.kit.modules import script

_HERE = Path(__file__).parent
_SPLITTER = component(
    "lab_splitter",
    html='<div class="splitter" role="separator" aria-orientation="vertical" tabindex="0"></div>',
    css=(_HERE / "splitter.css").read_text(),
    js=script(_HERE / "splitter.js"),
)


def splitter(key: str) -> None:
    """Draw it at the right edge of the column of the controls."""
    with st.container(key="page-splitter"):
        _SPLITTER(key=key)
