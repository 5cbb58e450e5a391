"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from dataclasses import replace

from lab.contract import Lesson
from lab.experiments.train_eval.lessons_batchnorm import BATCHNORM
from lab.experiments.train_eval.lessons_dropout import DROPOUT
from lab.experiments.train_eval.lessons_switches import SWITCHES


def _turned(lesson: Lesson, by: int) -> Lesson:
    """The choices in another order, so that the first one is not always the one that is measured."""
    choices = list(lesson.choices.items())
    start = by % len(choices)
    return replace(lesson, choices=dict(choices[start:] + choices[:start]))


lessons = tuple(_turned(lesson, number) for number, lesson in enumerate((*DROPOUT, *BATCHNORM, *SWITCHES)))
