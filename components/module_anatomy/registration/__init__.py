"""A foldable tree with marks: what a module owns, and which keys of a state dict are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlit.components import v2 as components_v2

from components.kit.modules import script
from components.kit.palette import css_variables

KEYS: dict[str, str] = {
    "↑ ↓": "previous and next row",
    "→ ←": "open and close a module",
    "e c": "open all, close all",
    "u": "only what is not registered",
}
"""Keys of the tree, while it has the focus (in presenter mode: always)."""
_HERE = Path(__file__).parent


_component = components_v2.component(
    "registration_tree",
    html='<div class="registration"></div>',
    css="\n".join(
        [
            f".registration{{{css_variables('light')}}}",
            f".registration.dark{{{css_variables('dark')}}}",
            (_HERE / "figure.css").read_text(encoding="utf-8"),
        ]
    ),
    js=script(_HERE / "figure.js"),
)


def tree_view(drawn: dict[str, Any], *, key: str, height: int = 560, presenter: bool = False) -> None:
    """Draw what a scene gives. Folding and moving happen in the browser and rerun nothing."""
    _component(key=key, data=drawn | {"height": height, "presenter": presenter}, height="content")
