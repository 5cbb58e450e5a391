"""What the start page offers: every lesson, and for every page that takes a program the settings under which it does."""

from __future__ import annotations

from importlib import import_module

import pytest

from components.frame.share_link import opened
from components.frame.start import lesson_rows, program_row, settings_for_program
from components.navigation import PAGES
from lab.contract import offers, program_knob


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_links_of_a_page_open_what_they_say(page) -> None:
    experiment = import_module(f"lab.experiments.{page.stem}")
    rows = lesson_rows(page, experiment.lessons)
    assert len({row["href"] for row in rows}) == len(rows) == len(experiment.lessons)
    row = program_row(page, experiment)
    assert row is not None
    found = opened({**row["query"]}, experiment.Params, experiment.lessons, page.prefix)
    knob = program_knob(experiment.Params)
    assert knob is not None
    assert not found.problems
    assert knob.name in offers(experiment, found.values)
    assert settings_for_program(experiment).items() <= found.values.items()
