"""Every preset answers its question, and its script prints the same number without the lab."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import warnings
from contextlib import redirect_stdout

import pytest

from lab.contract import Lesson, silent
from lab.experiments.gradient_flow import Params, explain, lessons, run, script
from lab.program.own_model import EXAMPLE

EXPECTED = {
    "tanh, 30 layers, default weights": "it vanishes",
    "sigmoid, 30 layers deep": "it vanishes",
    "ReLU with weights half too large": "it explodes",
    "a recurrent network over 50 time steps": "it vanishes",
    "ReLU with Kaiming initialisation": "it stays about the same",
    "batch normalisation alone makes it explode": "it explodes",
    "residual paths make sigmoid trainable": "it stays about the same",
    "24 transformer blocks": "it stays about the same",
    "small gradients in half precision": "nearly all of it",
    "None, zero and frozen are three things": "two",
    "stuck on the bound of hardtanh": "still on the bound",
    "clipping by norm: one factor for all": "they shrink by the same factor",
    "clipping by value turns the gradient": "it turns by some 50 degrees",
    "one infinite gradient": "it becomes NaN, the others zero",
    "clipping hides a bad learning rate": "it does not get better than guessing",
}


def printed_by(source: str) -> float:
    """The last line that the script prints, run in a namespace of its own."""
    output = io.StringIO()
    with redirect_stdout(output), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`parameters` is an empty generator")  # the mistake that a preset shows
        exec(compile(source, "script.py", "exec"), {"__name__": "__main__"})
    return float(output.getvalue().strip().splitlines()[-1])


@pytest.mark.parametrize("lesson", lessons, ids=lambda lesson: lesson.title)
def test_a_lesson_answers_and_its_script_agrees(lesson: Lesson):
    result = run(lesson.params, silent)
    answer, number = lesson.answer(result), lesson.evidence(result)
    assert answer in lesson.choices
    assert answer == EXPECTED.get(lesson.title, answer)
    assert explain(result)
    assert all((lesson.requirement, lesson.mechanism, lesson.proof, lesson.recovery, lesson.question))
    assert printed_by(script(lesson.params)) == pytest.approx(number, rel=1e-3, abs=1e-9, nan_ok=True)


def test_every_row_has_a_preset():
    assert {lesson.row for lesson in lessons} == {"N1", "N2", "N3", "N4"}


def test_scripts_differ_where_the_number_does():
    """Alive: another seed prints another number."""
    assert printed_by(script(Params(depth=6, steps=1))) != pytest.approx(
        printed_by(script(Params(depth=6, seed=1))), rel=1e-3
    )


@pytest.mark.parametrize(
    "params",
    [
        Params(depth=3, width=8, batch=4, loss="mse", norm="rms", optimizer="adamw"),
        Params(depth=3, width=8, batch=4, loss="random", reduction="sum", dtype="float64"),
        Params(family="own", code=EXAMPLE),
        Params(family="transformer", depth=2, width=8, batch=4, norm="batch"),
    ],
)
def test_the_script_of_other_settings_prints_the_slope(params):
    result = run(params, silent)
    assert printed_by(script(params)) == pytest.approx(result.headline.decades_per_layer, rel=1e-3)


def test_a_script_needs_nothing_of_the_lab(tmp_path):
    done = subprocess.run(
        [sys.executable, "-I", "-c", script(Params(depth=4, width=8))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert math.isfinite(float(done.stdout))
