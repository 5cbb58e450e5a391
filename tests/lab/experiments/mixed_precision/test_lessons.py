"""Every lesson runs, its answer is among the choices, and its number is what its script prints in plain PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.contract import Lesson, agreement, silent
from lab.experiments import mixed_precision
from lab.experiments.mixed_precision import Params, lessons, run, script

EXPECTED = {
    "fp16 without a scale": 0.59, "fp16 with the usual scale": 0.122, "the same in bf16": 0.00123, "the largest scale": 0.0088,
    "eight bits with one scale": 0.536, "one bad batch": 32768, "a NaN in every step": 200, "clip, then unscale": 2.3024,
    "small steps in bf16": 0.0638, "softmax of a bf16 input": 16, "edited inside autocast": 1, "a mask in fp16": 3,
}  # fmt: skip
"""Measured with torch 2.13 on a CPU."""
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
    assert agreement(mixed_precision).holds(lesson.title, number, printed[lesson.title])
    if lesson.title in EXPECTED:
        assert number == pytest.approx(EXPECTED[lesson.title], rel=0.02, abs=1e-12)


def test_every_row_has_a_lesson():
    assert {lesson.row for lesson in lessons} == {"H1"}


@pytest.mark.parametrize("view", ["window", "scaler", "ops", "updates", "matmul"])
def test_other_settings_have_a_script_that_parses(view: str):
    compile(script(Params(view=view, code="x = torch.ones(2)\n")), "script", "exec")
