"""The operator table: self and total as nested bars, rows that open into what they called, grouped without a rerun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamlit.components import v2 as components_v2

from components.kit.modules import script
from components.kit.palette import STEP

_HERE = Path(__file__).parent
_WRAPPER = "autograd::engine::evaluate_function: "
FRAMES = ("step", "data_loading", "copy_to_device", "forward", "backward", "optimizer", "synchronisation")
"""Ranges that stand for the step and its parts: 100 % and its cuts, not operators."""


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


def operator_table(
    calls: Mapping[str, Sequence[Any]], *, steps: int, group_by: str, device: bool, key: str, height: int = 560
) -> None:
    """Draw ``calls``, the call tree of ``steps`` profiled steps in wire form. ``group_by``: what a row is at first."""
    data = folded(calls) | {"steps": steps, "group": group_by, "device": device, "frames": FRAMES, "height": height}
    _component(key=key, data=data, height="content")


def folded(calls: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """The same columns with the engine's wrapper of a backward node and the node as one row: they are one thing."""
    kept: dict[str, list[Any]] = {column: [] for column in calls}
    at_of: list[int] = []
    for row in range(len(calls["name"])):
        above = at_of[calls["parent"][row]] if calls["parent"][row] >= 0 else -1
        name = calls["name"][row].removeprefix(_WRAPPER)
        wrapped = calls["parent"][row] >= 0 and calls["name"][calls["parent"][row]] == _WRAPPER + name
        if wrapped:
            at_of.append(above)
            for column in ("self_s", "bytes", "device_self_s", "flops", "moved_bytes"):
                values = [value for value in (kept[column][above], calls[column][row]) if value is not None]
                kept[column][above] = sum(values) if values else None
            for column in ("shapes", "module", "line", "stack"):
                kept[column][above] = calls[column][row] or kept[column][above]
            continue
        at_of.append(len(kept["name"]))
        for column in calls:
            kept[column].append({"parent": above, "name": name}.get(column, calls[column][row]))
    return kept
