"""From the merged calls of a profile to the rows of the operator table."""

from __future__ import annotations

from typing import Any

from lab.records.profiling import CallTree
from lab.wire import encode

_WRAPPER = "autograd::engine::evaluate_function: "
FRAMES = ("step", "data_loading", "copy_to_device", "forward", "backward", "optimizer", "synchronisation")
"""Ranges that stand for the step and its parts: 100 % and its cuts, not operators."""


def scene(calls: CallTree) -> dict[str, Any]:
    """The rows that the browser draws, in wire form."""
    return encode(folded(calls)) | {"frames": FRAMES}


def folded(calls: CallTree) -> dict[str, list[Any]]:
    """The columns with the engine's wrapper of a backward node and the node as one row: they are one thing."""
    columns: dict[str, tuple[Any, ...]] = vars(calls)
    kept: dict[str, list[Any]] = {column: [] for column in columns}
    at_of: list[int] = []
    for row in range(len(calls.name)):
        above = at_of[calls.parent[row]] if calls.parent[row] >= 0 else -1
        name = calls.name[row].removeprefix(_WRAPPER)
        wrapped = calls.parent[row] >= 0 and calls.name[calls.parent[row]] == _WRAPPER + name
        if wrapped:
            at_of.append(above)
            for column in ("self_s", "bytes", "device_self_s", "flops", "moved_bytes"):
                values = [value for value in (kept[column][above], columns[column][row]) if value is not None]
                kept[column][above] = sum(values) if values else None
            for column in ("shapes", "module", "line", "stack"):
                kept[column][above] = columns[column][row] or kept[column][above]
            continue
        at_of.append(len(kept["name"]))
        for column in columns:
            kept[column].append({"parent": above, "name": name}.get(column, columns[column][row]))
    return kept
