"""The autograd picture: the graph with what it keeps, the program beside it, the backward pass step by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components import v2 as components_v2

from components.autograd_graph.graph_view.marks import own_lines, own_nodes, site_marks
from components.autograd_graph.graph_view.scene import (
    Tree,
    default_pass,
    description,
    figure_id,
    folder,
    pass_graph,
    scene,
)
from components.kit import stepper
from components.kit.modules import script
from components.kit.palette import css_variables
from lab.contract import Site
from lab.records.graph import GraphResult

KEYS: dict[str, str] = {
    **stepper.KEYS,
    "↑ ↓": "to the first input, to the first user of the chosen node",
    "Enter": "open the chosen box, close the frame that has the focus",
    "f": "fit the whole picture",
    "+ −": "zoom in and out",
    "/": "search; Enter and Shift+Enter walk the matches",
    "l": "show or hide the program",
    "Escape": "close details and search",
}
"""Keys of the picture, while it has the focus (in presenter mode: always)."""

_HERE = Path(__file__).parent


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


_component = components_v2.component(
    "graph_view",
    html='<div class="figure"></div>',
    css="\n".join(
        [
            f".figure{{{css_variables('light')}}}",
            f".figure.dark{{{css_variables('dark')}}}",
            stepper.CSS,
            _read("figure.css"),
            _read("picture.css"),
        ]
    ),
    js=script(_HERE / "figure.js"),
)


def graph_view(
    result: GraphResult,
    *,
    program: str,
    key: str,
    height: int = 640,
    presenter: bool = False,
    sites: Sequence[Site] = (),
    beside: GraphResult | None = None,
    pointed_at: bool = True,
    playing: bool = False,
) -> None:
    """Draw the graph of an autograd ``result`` with the ``program`` that made it beside it.

    ``height`` in pixels, of everything. Presenter mode fills the window, enlarges the type and listens to keys of the whole
    page. ``sites``: lines to mark, the first with more weight. ``beside``: another result; what it lacks is marked.
    ``pointed_at``: lines that a finding points at are lit. ``playing``: the pass walks by itself, over and over, where motion is
    welcome. What the visitor opens or chooses reruns this figure only.
    """
    marks = {
        "sites": site_marks(sites),
        "ownLines": own_lines(program, beside.code) if beside else [],
        "pointedAt": pointed_at,
        "playing": playing,
    }
    _figure(result, program, key, height, presenter, folder(result), marks, beside)


@st.fragment
def _figure(
    result: GraphResult,
    program: str,
    key: str,
    height: int,
    presenter: bool,
    tree: Tree,
    marks: dict[str, Any],
    beside: GraphResult | None,
) -> None:
    state = st.session_state.get(key)
    view = (state.get("view") if state else None) or {}
    figure = figure_id(result)
    if view.get("figure") != figure or not 0 <= view.get("pass", 0) < max(len(result.passes), 1):
        view = {}
    number, opened = view.get("pass", default_pass(result)), view.get("open")
    own = own_nodes(pass_graph(result, number)[0], program, beside) if beside else frozenset()
    drawn = scene(result, number, tree(number), None if opened is None else set(opened), wide=beside is None, own=own)
    fault = result.fault
    _component(
        key=key,
        data=drawn
        | marks
        | {
            "figure": figure,
            "name": f"Autograd graph of {result.root}" if result.root else "Autograd graph",
            "description": description(result, drawn),
            "message": "" if result.nodes else result.no_graph or (fault.message if fault else ""),
            "program": program,
            "fault": {"type": fault.type, "message": fault.message, "line": fault.line} if fault else None,
            "height": height,
            "presenter": presenter,
        },
        height="content" if presenter else height,
        on_view_change=lambda: None,
    )
