"""Every lesson: it runs, its answer is among the choices, and its number is what its script prints in plain PyTorch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.contract import Lesson, silent
from lab.experiments.autograd_graph import Params, Result, explain, lessons, run, script

TITLES = [lesson.title for lesson in lessons]
OTHER_PROGRAM = "x = torch.tensor([1.0, 2.0], requires_grad=True)\ny = (x * 3).sum()\ny.backward()\nn = 5\n"


FORKS = """
import os, runpy, sys
import torch, torch._dynamo  # once for all: each script still runs in a process of its own
for path in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        sys.stdout = open(path + ".out", "w", encoding="utf-8")
        runpy.run_path(path, run_name="__main__")
        sys.stdout.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, path
"""


def python(*arguments: str, folder: Path) -> str:
    """What a Python that does not know the lab prints."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each script prints."""
    folder = tmp_path_factory.mktemp("scripts")
    texts = {lesson.title: script(lesson.params) for lesson in lessons}
    texts["another program"] = script(Params(code=OTHER_PROGRAM, seed=3))
    for number, text in enumerate(texts.values()):
        (folder / f"{number}.py").write_text(text, encoding="utf-8")
    python("-c", FORKS, *(f"{number}.py" for number in range(len(texts))), folder=folder)
    return {title: (folder / f"{number}.py.out").read_text(encoding="utf-8") for number, title in enumerate(texts)}


def test_a_script_runs_as_printed(printed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "lesson.py").write_text(script(of("a small network").params), encoding="utf-8")
    assert python("lesson.py", folder=tmp_path) == printed["a small network"]


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return {lesson.title: run(lesson.params, silent) for lesson in lessons}


def of(title: str) -> Lesson:
    return next(lesson for lesson in lessons if lesson.title == title)


@pytest.mark.parametrize("title", TITLES)
def test_the_number_is_what_the_script_prints(title: str, results: dict[str, Result], printed: dict[str, str]) -> None:
    assert of(title).evidence(results[title]) == pytest.approx(float(printed[title].splitlines()[-1]), rel=1e-6)


@pytest.mark.parametrize("title", TITLES)
def test_the_answer_is_one_of_the_choices(title: str, results: dict[str, Result]) -> None:
    lesson = of(title)
    answer = lesson.answer(results[title])
    assert answer in lesson.choices
    assert 3 <= len(lesson.choices) <= 4
    assert all(reason and reason != choice for choice, reason in lesson.choices.items())


CHANGED: dict[str, Callable[[str], str]] = {
    "a value used twice": lambda code: code.replace("(h + x)", "(h + x * 2)"),
    "z = 3x² at x = 2": lambda code: code.replace("3 * y", "4 * y"),
    "a branch taken": lambda code: code.replace("x ** 3 + x", "x ** 3"),
    "view then in-place": lambda code: code.replace("first.mul_(10)", "first.mul_(10)\nfirst.mul_(2)"),
    "broadcast bias": lambda code: code.replace("y.sum()", "y.mean()"),
    "detach": lambda code: code.replace(".detach()", ""),
    "no_grad": lambda code: code.replace("no_grad", "enable_grad"),
    "custom Function": lambda code: code.replace("return gradient", "return 2 * gradient"),
    "a hook on a result": lambda code: code.replace("* 10", "* 1"),
    "checkpoint": lambda code: code.replace("checkpoint(block, x, use_reentrant=False)", "block(x)"),
    "two backwards": lambda code: code.replace("\nloss.backward()\n", "\n"),
    "retain_graph": lambda code: code.replace("retain_graph=True", ""),
    "double backward": lambda code: code.replace("x ** 3", "x ** 4"),
    "a frozen layer": lambda code: code.replace("requires_grad_(False)", "requires_grad_(True)"),
    "a small network": lambda code: code.replace("randn(16", "randn(17"),
}


@pytest.mark.parametrize("title", TITLES)
def test_another_program_gives_another_number(title: str, results: dict[str, Result]) -> None:
    lesson = of(title)
    code = CHANGED[title](lesson.params.code)
    assert code != lesson.params.code
    assert lesson.evidence(run(Params(code=code), silent)) != pytest.approx(lesson.evidence(results[title]))


@pytest.mark.parametrize(
    ("title", "wrong"),
    [
        ("broadcast bias", "⅓: the mean over the rows"),
        ("detach", "33: the true derivative of x² + x³"),
        ("no_grad", "12: the true derivative of w²x"),
        ("a hook on a result", "12: a hook only looks"),
        ("checkpoint", "1 time"),
        ("two backwards", "10"),
        ("retain_graph", "0"),
        ("a frozen layer", "its nodes, but .grad stays None"),
    ],
)
def test_the_answer_is_measured_not_canned(title: str, wrong: str) -> None:
    lesson = of(title)
    code = CHANGED[title](lesson.params.code)
    if title == "broadcast bias":
        code = lesson.params.code.replace("y.sum()", "y.sum() / 9")
    assert lesson.answer(run(Params(code=code), silent)) == wrong


@pytest.mark.parametrize("title", TITLES)
def test_texts_are_there_and_plain(title: str) -> None:
    lesson = of(title)
    for text in (
        lesson.question,
        lesson.evidence_name,
        lesson.requirement,
        lesson.mechanism,
        lesson.proof,
        lesson.recovery,
    ):
        assert text.strip() == text != ""
        assert not re.search(r"\blab\b|\bTODO\b|  |[\U0001F300-\U0001FAFF]", text)
    assert lesson.question.endswith("?")
    for text in (lesson.requirement, lesson.mechanism, lesson.proof, lesson.recovery):
        assert text.endswith((".", "!"))


def test_rows_and_titles() -> None:
    assert len(set(TITLES)) == len(TITLES)
    assert {lesson.row for lesson in lessons} >= {"A1", "A2", "A3", "A4", "A6", "A7", "A8"}
    assert {lesson.row for lesson in lessons} <= {f"A{i}" for i in range(1, 9)}
    wanted = {
        "a value used twice", "a branch taken", "view then in-place", "broadcast bias", "detach", "no_grad", "custom Function",
        "checkpoint", "two backwards", "double backward", "a frozen layer", "a small network",
    }  # fmt: skip
    assert wanted <= set(TITLES)


@pytest.mark.parametrize("title", TITLES)
def test_every_lesson_has_findings(title: str, results: dict[str, Result]) -> None:
    assert 1 <= len(explain(results[title])) <= 5


def test_the_script_of_any_program_runs(printed: dict[str, str]) -> None:
    assert "x.grad = tensor([3., 3.])" in printed["another program"]


@pytest.mark.parametrize("title", TITLES)
def test_scripts_do_not_know_the_lab(title: str) -> None:
    text = script(of(title).params)
    assert of(title).params.code in text
    assert not re.search(r"^\s*(import|from) (?!torch|math)", text, re.M)
    compile(text, "script", "exec")
    assert Path(__file__).name not in text
