"""Every lesson runs, its answer is among the choices, and its number is what its script prints in plain PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.contract import Lesson, agreement, silent
from lab.experiments import transfers
from lab.experiments.transfers import Params, lessons, run, script

EXPECTED = {
    "a loop with three lines too many": 60,
    "where instead of an index": 0,
    "logging now and then": 2,
    "clipping by norm": 0,
}
TORCH_ONCE = """
import os, runpy, sys
import torch
torch.set_num_threads(1)
for path in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        sys.stdout = open(path + ".out", "w", encoding="utf-8")
        runpy.run_path(path, run_name="__main__")
        sys.stdout.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, path
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Last number of each script, by title."""
    folder = tmp_path_factory.mktemp("scripts")
    names = [f"{number}.py" for number, _ in enumerate(lessons)]
    for name, lesson in zip(names, lessons, strict=True):
        (folder / name).write_text(script(lesson.params), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", TORCH_ONCE, *names], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    last = {name: Path(folder / f"{name}.out").read_text(encoding="utf-8").split()[-1] for name in names}
    return {lesson.title: float(last[name]) for name, lesson in zip(names, lessons, strict=True)}


@pytest.mark.parametrize("lesson", lessons, ids=lambda lesson: lesson.title)
def test_a_lesson(lesson: Lesson, printed: dict[str, float]):
    result = run(lesson.params, silent)
    assert lesson.answer(result) in lesson.choices
    number = lesson.evidence(result)
    assert agreement(transfers).holds(lesson.title, number, printed[lesson.title])
    if lesson.title in EXPECTED:
        assert number == EXPECTED[lesson.title]


def test_every_row_has_a_lesson():
    assert {lesson.row for lesson in lessons} == {"H7"}


@pytest.mark.parametrize("view", ["waits", "copies", "overlap"])
def test_other_settings_have_a_script_that_parses(view: str):
    compile(script(Params(view=view, code="x = torch.ones(2)\n")), "script", "exec")
