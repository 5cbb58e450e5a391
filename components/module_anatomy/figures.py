"""The views of the page on modules: headline, one figure, and the tables behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import streamlit as st

from components.kit.tables import draw_table
from components.module_anatomy.brackets import KEYS as BRACKET_KEYS
from components.module_anatomy.brackets import brackets_view
from components.module_anatomy.registration import KEYS as TREE_KEYS
from components.module_anatomy.registration import tree_view
from components.module_anatomy.registration.scene import action_scene, keys_scene, tree_scene
from lab.records.anatomy import AnatomyResult, TensorRow

KEYS = TREE_KEYS | BRACKET_KEYS
TENSORS = {
    "name": "As Python reaches it.", "kind": "", "shape": "", "dtype": "", "bytes": "", "line": "Line that gave the module this tensor.",
    "moves": "to() changed its twin in a copy.", "gradient": "After one backward.", "owned": "By the optimizer.", "changed": "In one step.",
    "saved": "In the state dict.", "reached": "The graph of the loss ends in it.", "identity": "Equal numbers are one object.",
    "storage": "Equal numbers are one piece of memory.",
}  # fmt: skip
UNREGISTERED = {
    "path": "",
    "owner": "",
    "way": "How it is held.",
    "what": "",
    "tensors": "",
    "elements": "",
    "line": "",
    "repair": "",
}
EVENTS = {
    "phase": "",
    "path": "",
    "kind": "",
    "mark": "",
    "by": "",
    "line": "",
    "shape": "",
    "changed": "",
    "before": "2-norm.",
    "after": "2-norm.",
}
KEY_ROWS = {
    "key": "", "here": "In the module.", "there": "In the file.", "foreseen": "Before anything is loaded.", "changed": "Bits of the module.",
    "loaded": "Equals the file.", "same_object": "The module holds the same tensor as before.", "dtype_after": "", "lost": "Finite in the file, not finite in the module.",
}  # fmt: skip
ACTION_ROWS = {
    "name": "",
    "before": "",
    "after": "",
    "same_object": "",
    "owned_before": "By an optimizer made before.",
    "owned_after": "",
}
HOOKS = {
    "path": "",
    "kind": "",
    "line": "",
    "names": "Under how many names the module is.",
    "fired": "Runs in the measured pass.",
}
SHARED = {"names": "", "kind": "", "class_": "", "elements": "", "lines": ""}


def draw_view(result: AnatomyResult, key: str, presenting: bool) -> None:
    """The figure of the view that was run."""
    if result.view == "hooks":
        if result.events:
            brackets_view(result, key=f"{key}-brackets", presenter=presenting)
        else:
            st.info(result.no_events or "The program has nothing to call.", icon=":material/info:")
    elif result.view == "state dict":
        if result.keys and result.keys.rows:
            tree_view(keys_scene(result.keys), key=f"{key}-keys", presenter=presenting)
        else:
            st.info(
                (result.keys.error if result.keys else "") or "There is no module to load into.", icon=":material/info:"
            )
    elif result.tree:
        if result.action and result.action.rows:
            tree_view(action_scene(result.action), key=f"{key}-action", presenter=presenting)
        tree_view(tree_scene(result), key=f"{key}-tree", presenter=presenting)


def draw_details(result: AnatomyResult, key: str) -> None:
    """The numbers behind the figure, a tab each."""
    tables: dict[str, tuple[Sequence[Any], dict[str, str]]] = {
        "Tensors": (result.tensors, TENSORS),
        "Not registered": (result.unregistered, UNREGISTERED),
        "After the action": (result.action.rows if result.action else (), ACTION_ROWS),
        "Shared": (result.shared, SHARED),
        "Events": (result.events, EVENTS),
        "Hooks": (result.hooks, HOOKS),
        "Keys": (result.keys.rows if result.keys else (), KEY_ROWS),
    }
    filled = {name: data for name, data in tables.items() if data[0]}
    if not filled:
        return
    for tab, (name, (rows, helps)) in zip(st.tabs(list(filled)), filled.items(), strict=True):
        with tab:
            draw_table([_cells(row) for row in rows], helps, f"{key}-{name}", "")


def _cells(row: Any) -> dict[str, Any]:
    """Shapes and names as text."""
    cells = asdict(row)
    if isinstance(row, TensorRow):
        cells["shape"] = "not known yet" if row.shape is None else str(list(row.shape))
    return {
        name: ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else value for name, value in cells.items()
    }
