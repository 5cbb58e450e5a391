"""A DOT picture of a visitor's program as an image. The text may be hostile: Graphviz reads it in a process of its own, with
a time limit and without files, and the browser gets an image, in which no script runs."""

from __future__ import annotations

import subprocess

import streamlit as st

from components.autograd_graph.graph_view.layout import graphviz

_TIME_LIMIT_S = 5.0
_MOST_BYTES = 4 << 20


def classic_picture(dot: str, why_not: str, *, description: str) -> None:
    """Draw ``dot``, or say why there is no picture."""
    if why_not:
        st.info(why_not)
        return
    svg = _svg(dot)
    if svg is None:
        st.info("Graphviz could not lay this picture out in time.")
        return
    st.image(svg, caption=description, width="content")


@st.cache_data(max_entries=32, show_spinner=False)
def _svg(dot: str) -> str | None:
    try:
        done = subprocess.run(
            [graphviz(), "-Tsvg"],
            input=dot.encode(),
            capture_output=True,
            timeout=_TIME_LIMIT_S,
            env={"SERVER_NAME": "lab", "PATH": "/nonexistent"},  # SERVER_NAME forbids Graphviz to read files
        )
    except subprocess.TimeoutExpired:
        return None
    text = done.stdout.decode(errors="replace")
    if done.returncode or "<svg" not in text or len(text) > _MOST_BYTES:
        return None
    return text[text.index("<svg") :]
