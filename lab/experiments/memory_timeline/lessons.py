"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from lab.contract import Lesson

lessons: tuple[Lesson, ...] = ()
