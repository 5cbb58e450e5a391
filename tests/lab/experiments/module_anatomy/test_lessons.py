"""Every lesson: it runs, its answer is among the choices, and its number is what its script prints in plain PyTorch."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab.contract import Lesson, silent
from lab.experiments.module_anatomy import Params, Result, explain, lessons, run, script

TITLES = [lesson.title for lesson in lessons]


def of(title: str) -> Lesson:
    return next(lesson for lesson in lessons if lesson.title == title)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return {lesson.title: run(lesson.params, silent) for lesson in lessons}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each script prints, in one process of its own that knows no lab."""
    folder = tmp_path_factory.mktemp("scripts")
    names = []
    for number, lesson in enumerate(lessons):
        (folder / f"{number}.py").write_text(script(lesson.params), encoding="utf-8")
        names.append(f"{number}.py")
    code = "import runpy, sys\nfor n in sys.argv[1:]:\n    print('@@', n)\n    runpy.run_path(n, run_name='__main__')\n"
    done = subprocess.run(
        [sys.executable, "-c", code, *names], cwd=folder, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    parts = done.stdout.split("@@ ")[1:]
    return {lesson.title: part for lesson, part in zip(lessons, parts, strict=True)}


@pytest.mark.parametrize("title", TITLES)
def test_the_number_is_what_the_script_prints(title: str, results: dict[str, Result], printed: dict[str, str]) -> None:
    assert of(title).evidence(results[title]) == pytest.approx(float(printed[title].splitlines()[-1]), rel=1e-5)


FACTS = {
    "a list of layers": 0, "plain tensor, buffer, not persistent": 2, "an unused layer": 0, "tied weights": 800, "model.forward(x)": 0,
    "three hooks on one object": 9, "a prefix on every key": 0, "a size mismatch": 1, "Parameter, then double": 1,
    "optimizer first, weight_norm second": 1, "a bias before BatchNorm": 0, "a hook on every call": 6, "feature extraction": 8,
    "gradient surgery": 0.5,
}  # fmt: skip
"""By hand: counts of layers and keys, 1 + 2 + 3, the width of the second layer, the factor in the hook."""


@pytest.mark.parametrize("title", TITLES)
def test_the_number_is_the_one_by_hand(title: str, results: dict[str, Result]) -> None:
    assert of(title).evidence(results[title]) == pytest.approx(FACTS[title], rel=1e-6)


@pytest.mark.parametrize("title", TITLES)
def test_the_answer_is_one_of_the_choices(title: str, results: dict[str, Result]) -> None:
    lesson = of(title)
    assert lesson.answer(results[title]) in lesson.choices
    assert 3 <= len(lesson.choices) <= 4
    assert 1 <= len(explain(results[title])) <= 5


CHANGED: dict[str, Callable[[Params], Params]] = {
    "a list of layers": lambda p: replace(p, code=p.code.replace("[nn.Linear(2, 2) for _ in range(3)]", "nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])")),
    "plain tensor, buffer, not persistent": lambda p: replace(p, code=p.code.replace("self.plain = torch.ones(3)", 'self.register_buffer("plain", torch.ones(3))')),
    "an unused layer": lambda p: replace(p, code=p.code.replace("return self.used(x)", "return self.unused(self.used(x))")),
    "tied weights": lambda p: replace(p, code=p.code.replace("        self.head.weight = self.embedding.weight\n", "")),
    "model.forward(x)": lambda p: replace(p, call="model(x)"),
    "three hooks on one object": lambda p: replace(p, code=p.code.replace("(nn.Linear(2, 2), activation)", "(nn.Linear(2, 2), nn.GELU())")),
    "a prefix on every key": lambda p: replace(p, code=p.code.replace('f"module.{key}"', "key")),
    "a size mismatch": lambda p: replace(p, code=p.code.replace("nn.Linear(4, 8, bias=False)", "nn.Linear(4, 9)")),
    "Parameter, then double": lambda p: replace(p, code=p.code.replace("nn.Parameter(torch.rand(3)).double()", "nn.Parameter(torch.rand(3).double())")),
    "optimizer first, weight_norm second": lambda p: replace(p, code=p.code.replace("nn.utils.parametrizations.weight_norm(model)\n", "")),
    "a bias before BatchNorm": lambda p: replace(p, code=p.code.replace(", nn.BatchNorm1d(8))", ", nn.ReLU())")),
    "a hook on every call": lambda p: replace(p, code=p.code.replace("range(3)", "range(2)")),
    "feature extraction": lambda p: replace(p, code=p.code.replace('features["middle"] = output.detach()', "return output * 2")),
    "gradient surgery": lambda p: replace(p, code=p.code.replace("(given[0] * 0.5,)", "None")),
}  # fmt: skip


@pytest.mark.parametrize("title", TITLES)
def test_another_program_gives_another_answer(title: str, results: dict[str, Result]) -> None:
    lesson = of(title)
    params = CHANGED[title](lesson.params)
    assert params != lesson.params
    other = lesson.answer(run(params, silent))
    assert other in lesson.choices
    assert other != lesson.answer(results[title])


@pytest.mark.parametrize("title", TITLES)
def test_texts_are_there_and_plain(title: str) -> None:
    lesson = of(title)
    texts = (lesson.question, lesson.evidence_name, lesson.requirement, lesson.mechanism, lesson.proof, lesson.recovery)
    for text in texts:
        assert text.strip() == text != ""
        assert not re.search(r"\blab\b|\bTODO\b|  ", text)
    assert lesson.question.endswith("?")
    assert all(reason and reason != choice for choice, reason in lesson.choices.items())


def test_rows_and_titles() -> None:
    assert len(set(TITLES)) == len(TITLES)
    assert {lesson.row for lesson in lessons} == {"M1", "M2", "M3"}


@pytest.mark.parametrize("title", TITLES)
def test_scripts_do_not_know_the_lab(title: str) -> None:
    text = script(of(title).params)
    assert of(title).params.code in text
    assert not re.search(r"^\s*(import|from) (?!torch|math)", text, re.M)


def test_the_script_of_any_program_runs(tmp_path: Path) -> None:
    (tmp_path / "any.py").write_text(script(Params()), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "any.py"], cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.splitlines()[-1]) == run(Params(), silent).parameter_count
    assert "not registered" in done.stdout
