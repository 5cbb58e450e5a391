"""The timeline: every event a box, lanes by thread and stream. Zoom, pan, drag to sum a range. Nothing asks another host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlit.components import v2 as components_v2

from components.kit import zoom
from components.kit.modules import script
from components.kit.palette import STEP, Theme

KEYS: dict[str, str] = {
    "W S": "timeline: zoom in and out; so do the wheel and a drag over the ruler",
    "A D": "timeline: to the left and right; so does Shift and drag",
    "← →": "timeline: previous and next event of the lane",
    "F": "timeline: fit the chosen event or stretch; again for the whole",
    "Escape": "timeline: drop the choice",
}
"""Keys of the timeline, while it has the focus."""

_HERE = Path(__file__).parent
PARTS = ("data loading", "copy to device", "forward", "backward", "optimizer", "synchronisation", "rest")


def _hues(theme: Theme) -> str:
    return "".join(f"--{part.replace(' ', '-')}:{STEP[theme][part]};" for part in PARTS)


_component = components_v2.component(
    "trace_timeline",
    html='<div class="timeline"></div>',
    css=f".timeline{{{_hues('light')}}}.timeline.dark{{{_hues('dark')}}}"
    + zoom.CSS
    + (_HERE / "timeline.css").read_text(encoding="utf-8"),
    js=script(_HERE / "timeline.js"),
)


def trace_timeline(timeline: Mapping[str, Any], *, key: str, height: int = 460) -> None:
    """Draw a ``Timeline`` in wire form. ``height`` in pixels of the lanes."""
    _component(key=key, data={**timeline, "parts": PARTS, "height": height}, height="content")
