"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from dataclasses import replace

from lab.contract import Agreement, Lesson
from lab.experiments.tensor_anatomy.lessons_numbers import NUMBERS
from lab.experiments.tensor_anatomy.lessons_program import PROGRAMS

agreement = Agreement(relative=1e-4)


def _turned(lesson: Lesson, by: int) -> Lesson:
    """The choices in another order, so that the first one is not always the one that is measured."""
    choices = list(lesson.choices.items())
    start = by % len(choices)
    return replace(lesson, choices=dict(choices[start:] + choices[:start]))


lessons = tuple(_turned(lesson, number) for number, lesson in enumerate((*PROGRAMS, *NUMBERS)))
