"""The memory strips: the program with a mark a line, and each piece of memory as cells with the names that live in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamlit.components import v2 as components_v2

from components.kit import stepper
from components.kit.modules import script
from components.kit.palette import css_variables
from components.tensor_anatomy.memory_strips.scene import scene
from lab.contract import Site
from lab.records.tensors import TensorResult

KEYS: dict[str, str] = {
    **stepper.KEYS,
    "↓ ↑": "next and previous line of the program",
}
"""Keys of the figure, while it has the focus (in presenter mode: always)."""

_HERE = Path(__file__).parent


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


_component = components_v2.component(
    "memory_strips",
    html='<div class="strips"></div>',
    css="\n".join(
        [
            f".strips{{{css_variables('light')}}}",
            f".strips.dark{{{css_variables('dark')}}}",
            stepper.CSS,
            _read("figure.css"),
        ]
    ),
    js=script(_HERE / "figure.js"),
)


def memory_strips(
    result: TensorResult,
    *,
    key: str,
    height: int = 560,
    presenter: bool = False,
    sites: Sequence[Site] = (),
    listing: bool = True,
) -> None:
    """Draw the lines and the memory of ``result``. Stepping happens in the browser and reruns nothing."""
    _component(
        key=key,
        data=scene(result, sites) | {"height": height, "presenter": presenter, "withListing": listing},
        height="content" if presenter else height,
    )
