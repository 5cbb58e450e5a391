"""Hooks as brackets that open and close, in the order in which they ran, stepped."""

from __future__ import annotations

from pathlib import Path

from streamlit.components import v2 as components_v2

from components.kit import stepper
from components.kit.modules import script
from components.kit.palette import css_variables
from components.module_anatomy.brackets.scene import brackets_scene
from lab.records.anatomy import AnatomyResult

KEYS = stepper.KEYS | {"h": "only hooks, or the brackets of calls and forwards as well"}
"""Keys of the figure, while it has the focus (in presenter mode: always)."""
_HERE = Path(__file__).parent

_component = components_v2.component(
    "hook_brackets",
    html='<div class="brackets"></div>',
    css="\n".join(
        [
            f".brackets{{{css_variables('light')}}}",
            f".brackets.dark{{{css_variables('dark')}}}",
            stepper.CSS,
            (_HERE / "figure.css").read_text(encoding="utf-8"),
        ]
    ),
    js=script(_HERE / "figure.js"),
)


def brackets_view(result: AnatomyResult, *, key: str, height: int = 560, presenter: bool = False) -> None:
    """Draw the events of ``result``. Stepping happens in the browser and reruns nothing."""
    _component(key=key, data=brackets_scene(result) | {"height": height, "presenter": presenter}, height="content")
