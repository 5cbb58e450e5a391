"""The transport bar of figures that are stepped or played: first, previous, play, next, last, a slider, the position.

A figure puts ``CSS`` before its own styles and imports ``createStepper`` from stepper.js.
``createStepper(host, onMove, word)`` fills ``host`` (``word``: what one step is called) and calls ``onMove(position)``, where position 0 is before the first step and
position k after the k-th. It returns ``{setCount(count, position, idle), go(position), key(event), stop(), position, count}``;
``key`` answers whether it used the key event. A link brings its step with the query parameter ``<page>.at``: the stepper
goes there once, and tells it to whoever copies a link (the event ``lab-where``).
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
CSS = (_HERE / "stepper.css").read_text(encoding="utf-8")
KEYS = {
    "→ ←": "next and previous step",
    "Home End": "before the first step, last step",
    "Space": "play and pause",
}
"""What a figure with this bar does on which key."""
