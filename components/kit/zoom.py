"""Zoom of timelines by wheel, drag and keys: zoom.js has the arithmetic and the gestures, ``CSS`` the mark of a drag."""

from __future__ import annotations

from pathlib import Path

CSS = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
