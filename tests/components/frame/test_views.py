"""A lesson opens a view that its page has."""

from __future__ import annotations

from importlib import import_module

import pytest

from components.gradient_flow.figures import LOOKS
from components.memory_timeline.figures import VIEWS
from components.op_profile.views import VIEWS as PROFILE_VIEWS

KNOWN = {"gradient_flow": LOOKS["view"], "memory_timeline": tuple(VIEWS), "op_profile": PROFILE_VIEWS}


@pytest.mark.parametrize("stem", KNOWN)
def test_views_of_lessons_exist(stem: str) -> None:
    views = {lesson.view for lesson in import_module(f"lab.experiments.{stem}").lessons if lesson.view}
    assert views <= set(KNOWN[stem])
