"""The program in bands of its modes, with a thread for each tensor from the line where it was born."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamlit.components import v2 as components_v2

from components.gradient_modes.mode_bands.scene import scene
from components.kit import stepper
from components.kit.modules import script
from components.kit.palette import css_variables
from lab.contract import Site
from lab.records.gradient_modes import ModesOfGradients

KEYS: dict[str, str] = {**stepper.KEYS, "↓ ↑": "next and previous line of the program"}
"""Keys of the figure, while it has the focus (in presenter mode: always)."""

_HERE = Path(__file__).parent


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


_component = components_v2.component(
    "mode_bands",
    html='<div class="bands"></div>',
    css="\n".join(
        [
            f".bands{{{css_variables('light')}}}",
            f".bands.dark{{{css_variables('dark')}}}",
            stepper.CSS,
            _read("figure.css"),
        ]
    ),
    js=script(_HERE / "figure.js"),
)


def mode_bands(
    result: ModesOfGradients, *, key: str, height: int = 560, presenter: bool = False, sites: Sequence[Site] = ()
) -> None:
    """Draw the lines of ``result`` in their modes. Stepping happens in the browser and reruns nothing."""
    _component(
        key=key,
        data=scene(result, sites) | {"height": height, "presenter": presenter},
        height="content" if presenter else height,
    )
