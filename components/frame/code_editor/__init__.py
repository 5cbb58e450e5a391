"""The program editor: a textarea with a coloured layer behind it, in the page's own DOM.

NOTE How text travels.
1. The browser holds the text while it is being typed; nothing is sent for a keystroke.
2. Run (button or Ctrl+Enter) sends one state value ``sent = {"text", "run", "serial"}``: the text and a new run number
   together, so that a run can never see an older text. Leaving the editor sends the text with the old run number.
3. A text that comes from Python (a preset, a link) reaches the editor with a higher ``revision``; with the same
   revision the browser's text wins.
4. A text travels with the revision that it was typed over: one that Python has replaced meanwhile comes too late and is
   ignored.
5. Every sending has a higher ``serial``, announced in the browser as the event ``lab-sent`` and given back by Python to
   the page bar: a link is copied only when the address holds the newest text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st
from streamlit.components.v2 import component

from components.kit.modules import script

_HERE = Path(__file__).parent
_EDITOR = component(
    "lab_code_editor",
    html=(_HERE / "editor.html").read_text(),
    css=(_HERE / "editor.css").read_text(),
    js=script(_HERE / "editor.js"),
)


class Sent(NamedTuple):
    """What the editor last sent."""

    text: str
    run: int
    """Differs from the one before when Run was pressed."""
    serial: int = 0
    revision: int | None = None
    """Of the text that it was typed over."""


def last_sent(key: str) -> Sent | None:
    """What the editor called ``key`` last sent, None when it has sent nothing. Its texts are cleaned."""
    match st.session_state.get(key):
        case {"sent": {"text": str(text), "run": int(run), **rest}}:
            return Sent(clean(text), run, rest.get("serial", 0), rest.get("revision"))
    return None


def code_editor(
    text: str,
    *,
    key: str,
    revision: int,
    label: str,
    error_line: int | None = None,
    error_text: str = "",
    marks: Sequence[Mapping[str, Any]] = (),
    run_name: str = "Run",
) -> None:
    """Draw the editor; read it with ``last_sent`` at the start of the next run. ``error_line`` counts from 1.

    ``marks``: lines that have a part in what happened, ``{"line", "rank", "row"}``: marked while the text of the line is
    ``row``, rank 0 heaviest.
    """
    _EDITOR(
        key=key,
        data={
            "text": text,
            "revision": revision,
            "label": label,
            "errorLine": error_line,
            "errorText": error_text,
            "runName": run_name,
            "marks": list(marks),
        },
        on_sent_change=lambda: None,
    )


def clean(text: str) -> str:
    """Line ends as ``\\n``; lone surrogates, which are no text, as U+FFFD."""
    return text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode().replace("\0", "\ufffd")
