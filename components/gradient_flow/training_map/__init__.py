"""Training as a heat map, layer × step, that is stepped or played, with the loss curve above and the layers of one step beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlit.components import v2 as components_v2

from components.gradient_flow.training_map.scene import training_scene
from components.kit import stepper
from components.kit.modules import script
from components.kit.palette import HEALTH
from lab.records.gradients import GradientResult

KEYS: dict[str, str] = {**stepper.KEYS}
"""Keys of the figure, while it has the focus (in presenter mode: always)."""

_HERE = Path(__file__).parent


def _colours(theme: Any) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in HEALTH[theme].items())


_component = components_v2.component(
    "training_map",
    html='<div class="map"></div>',
    css=f".map{{{_colours('light')}}}\n.map.dark{{{_colours('dark')}}}\n{stepper.CSS}\n{(_HERE / 'map.css').read_text(encoding='utf-8')}",
    js=script(_HERE / "map.js"),
)


def training_map(result: GradientResult, *, key: str, height: int = 470, presenter: bool = False) -> None:
    """Draw the training steps of ``result``. ``height`` in pixels, of everything."""
    scene = training_scene(result)
    data = scene | {"height": height, "presenter": presenter}
    _component(key=key, data=data, height="content" if presenter else height)
