"""From the events of a profile to the boxes of the timeline."""

from __future__ import annotations

from typing import Any

from lab.records.profiling import Timeline
from lab.wire import encode

PARTS = ("data loading", "copy to device", "forward", "backward", "optimizer", "synchronisation", "rest")


def scene(timeline: Timeline) -> dict[str, Any]:
    """What the browser draws, in wire form."""
    return encode(timeline) | {"parts": PARTS}
