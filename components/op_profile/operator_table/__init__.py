"""The operator table: self and total as nested bars, rows that open into what they called, grouped without a rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlit.components import v2 as components_v2

from components.kit.modules import script
from components.kit.palette import STEP
from components.op_profile.operator_table.scene import scene
from lab.records.profiling import CallTree

_HERE = Path(__file__).parent


def _hues(theme: Any) -> str:
    colours = STEP[theme]
    return f"--self:{colours['forward']};--total:{colours['copy to device']};"


_component = components_v2.component(
    "operator_table",
    html='<div class="operators"></div>',
    css=f".operators{{{_hues('light')}}}.operators.dark{{{_hues('dark')}}}"
    + (_HERE / "table.css").read_text(encoding="utf-8"),
    js=script(_HERE / "table.js"),
)


def operator_table(calls: CallTree, *, steps: int, group_by: str, device: bool, key: str, height: int = 560) -> None:
    """Draw ``calls``, the call tree of ``steps`` profiled steps. ``group_by``: what a row is at first."""
    shown = {"steps": steps, "group": group_by, "device": device, "height": height}
    _component(key=key, data=scene(calls) | shown, height="content")
