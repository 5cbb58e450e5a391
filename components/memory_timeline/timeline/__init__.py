"""The memory timeline: stacked areas over operations, stepped, with what is alive at the chosen instant beside them."""

from __future__ import annotations

from pathlib import Path

from streamlit.components import v2 as components_v2

from components.kit import stepper, zoom
from components.kit.modules import script
from components.kit.palette import MEMORY, Theme
from components.memory_timeline.timeline.scene import scene
from lab.records.memory import MemoryResult

KEYS: dict[str, str] = {
    "→ ←": "next and previous operation",
    "Home End": "before the first operation, last operation",
    "Space": "play and pause",
    "m": "go to the peak",
    "1 2 … 0": "show one step, or all of them",
    "W S": "zoom in and out; so do the wheel and a drag over the bands",
    "A D": "to the left and right; so does Shift and drag",
    "f": "show the whole",
    "g": "group what is alive by category, module or operation",
}
"""Keys of the figure, while it has the focus (in presenter mode: always)."""

_HERE = Path(__file__).parent


def _hues(theme: Theme) -> str:
    return "".join(f"--{name.replace(' ', '-')}:{colour};" for name, colour in MEMORY[theme].items())


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


_component = components_v2.component(
    "memory_view",
    html='<div class="memory"></div>',
    css="\n".join(
        [f".memory{{{_hues('light')}}}", f".memory.dark{{{_hues('dark')}}}", stepper.CSS, zoom.CSS, _read("figure.css")]
    ),
    js=script(_HERE / "figure.js"),
)


def memory_view(result: MemoryResult, *, key: str, height: int = 560, presenter: bool = False) -> None:
    """Draw the timeline of ``result``. ``height`` in pixels; presenter mode fills the window.

    Stepping, choosing and zooming happen in the browser and rerun nothing.
    """
    _component(
        key=key,
        data=scene(result) | {"height": height, "presenter": presenter},
        height="content" if presenter else height,
    )
