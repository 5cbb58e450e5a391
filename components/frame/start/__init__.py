"""The start page's own figure: paste a program, a path for a first hour, and all lessons, searchable.

Everything happens in the browser: a program that is pasted goes into the link of the page that opens, and which lessons were
seen is kept in this browser only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

from streamlit.components.v2 import component

from components.frame.share_link import PACKED_CHARACTERS, link_of, slug
from components.kit.modules import script
from components.navigation import Page
from lab.contract import Lesson, knobs, offers, program_knob

_HERE = Path(__file__).parent
_START = component(
    "lab_start",
    html='<div class="start"></div>',
    css=(_HERE / "start.css").read_text(),
    js=script(_HERE / "start.js"),
)


def start(pages: Sequence[tuple[Page, ModuleType]], path: Sequence[tuple[str, str]], *, first: str) -> None:
    """Draw it. ``path``: (page, title of a lesson) in the order of a first hour. ``first``: the page that is offered first for a
    program."""
    lessons = [row for page, experiment in pages for row in lesson_rows(page, experiment.lessons)]
    programs = [row for page, experiment in pages if (row := program_row(page, experiment))]
    by_title = {(row["stem"], row["title"]): row["href"] for row in lessons}
    _START(
        key="start",
        data={
            "lessons": lessons,
            "path": [by_title[step] for step in path],
            "programs": sorted(programs, key=lambda row: row["stem"] != first),
            "longest": PACKED_CHARACTERS,
        },
    )


def lesson_rows(page: Page, lessons: Sequence[Lesson]) -> list[dict[str, str]]:
    """What is shown of each lesson, and the words that it is found by."""
    return [
        {
            "href": lesson_link(page, item),
            "stem": page.stem,
            "page": page.title,
            "title": item.title,
            "question": item.question,
            "row": item.row,
            "words": " ".join((item.requirement, item.mechanism, item.proof, item.recovery, *item.choices)),
        }
        for item in lessons
    ]


def lesson_link(page: Page, lesson: Lesson) -> str:
    """Address of the page with this lesson; also its name in what a browser has seen."""
    return f"{page.stem}?{page.prefix}-preset={slug(lesson.title)}"


def program_row(page: Page, experiment: ModuleType) -> dict[str, Any] | None:
    """How a pasted program opens on this page: the settings under which it takes one. None where it takes none."""
    knob = program_knob(experiment.Params)
    if knob is None:
        return None
    settings = settings_for_program(experiment)
    query = link_of(_defaults(experiment) | settings, experiment.Params, (), page.prefix).query
    return {"stem": page.stem, "title": page.title, "query": query, "code": f"{page.prefix}-{knob.name}"}


def settings_for_program(experiment: ModuleType) -> dict[str, Any]:
    """The fewest choices that make the experiment take a visitor's program. Raises LookupError where more than two are needed."""
    program, values = program_knob(experiment.Params), _defaults(experiment)
    assert program is not None
    choices = [{name: choice} for name, k in knobs(experiment.Params).items() for choice in k.choices]
    pairs = (one | other for one, other in combinations(choices, 2))
    for settings in ({}, *choices, *pairs):
        if program.name in offers(experiment, values | settings):
            return settings
    raise LookupError(f"{experiment.__name__} takes a program under no choice of two knobs")


def _defaults(experiment: ModuleType) -> dict[str, Any]:
    return asdict(experiment.Params())
