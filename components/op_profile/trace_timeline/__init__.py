"""The timeline: every event a box, lanes by thread and stream. Zoom, pan, drag to sum a range. Nothing asks another host."""

from __future__ import annotations

from pathlib import Path

from streamlit.components import v2 as components_v2

from components.kit import zoom
from components.kit.modules import script
from components.kit.palette import STEP, Theme
from components.op_profile.trace_timeline.scene import PARTS, scene
from lab.records.profiling import Timeline

KEYS: dict[str, str] = {
    "W S": "timeline: zoom in and out; so do the wheel and a drag over the ruler",
    "A D": "timeline: to the left and right; so does Shift and drag",
    "← →": "timeline: previous and next event of the lane",
    "F": "timeline: fit the chosen event or stretch; again for the whole",
    "Escape": "timeline: drop the choice",
}
"""Keys of the timeline, while it has the focus."""

_HERE = Path(__file__).parent


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


def trace_timeline(timeline: Timeline, *, key: str, height: int = 460) -> None:
    """Draw ``timeline``. ``height`` in pixels of the lanes."""
    _component(key=key, data=scene(timeline) | {"height": height}, height="content")
