"""Every lesson runs, its answer is among the choices, and its number is what its script prints in plain PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lab import wire
from lab.contract import Lesson, knobs, silent
from lab.experiments.train_eval import Params, Result, explain, lessons, offered, run, script
from lab.experiments.train_eval.readings import evidence
from lab.experiments.train_eval.schema import MODULES, STUDIES
from lab.experiments.train_eval.studies.batchnorm_freezing import TREATMENTS

OTHERS = [
    *(Params(view=view, study=study) for view, studies in STUDIES.items() for study in studies),
    *(Params(module=module, inputs="normal", passes=9) for module in MODULES["dropout"]),
    Params(study="convergence", inputs="ramp", p=0.1, passes=30),
    Params(view="batchnorm", module="BatchNorm2d", momentum=None, dtype="float32"),
    Params(view="batchnorm", study="batch size", batch=1),
    *(Params(view="batchnorm", study="freezing", treatment=name) for name in TREATMENTS),
    *(Params(view="switches", mode=m, gradients=g) for m in ("train", "eval") for g in ("grad", "no_grad", "inference_mode")),
    Params(view="scan", model="transformer", seed=3),
]  # fmt: skip
FORKS = """
import os, runpy, sys
import torch, torch._dynamo  # once for all: each script still runs in a process of its own
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
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the scripts of the lessons, then of ``OTHERS``, print, in a Python that does not know the lab."""
    folder = tmp_path_factory.mktemp("scripts")
    every = [*(lesson.params for lesson in lessons), *OTHERS]
    names = [f"{number}.py" for number in range(len(every))]
    for name, params in zip(names, every, strict=True):
        (folder / name).write_text(script(params), encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", FORKS, *names]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [(folder / f"{name}.out").read_text(encoding="utf-8") for name in names]


def last_number(text: str) -> float:
    return float(text.strip().splitlines()[-1])


@pytest.mark.parametrize("number", range(len(lessons)), ids=[lesson.title for lesson in lessons])
def test_the_script_prints_the_number_of_the_lesson(number: int, printed: list[str]) -> None:
    lesson: Lesson = lessons[number]
    result = run(lesson.params, silent)
    assert lesson.answer(result) in lesson.choices
    assert lesson.evidence(result) == evidence(result)
    assert last_number(printed[number]) == pytest.approx(lesson.evidence(result), rel=1e-6, abs=1e-9)
    assert wire.decode(Result, wire.loads(wire.dumps(result))) == result


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_the_script_of_other_settings(number: int, printed: list[str]) -> None:
    result = run(OTHERS[number], silent)
    assert last_number(printed[len(lessons) + number]) == pytest.approx(evidence(result), rel=1e-6, abs=1e-9)


def test_a_script_with_another_seed_prints_another_number(printed: list[str]) -> None:
    """The comparison is alive: one seed further the share is another one."""
    other = run(Params(**{**vars(lessons[0].params), "seed": 1}), silent)
    assert last_number(printed[0]) != pytest.approx(evidence(other), rel=1e-6)


def test_a_script_does_not_know_the_lab() -> None:
    for params in (*(lesson.params for lesson in lessons), *OTHERS):
        assert "lab." not in script(params)
        assert "import" in script(params)


def test_the_rows_have_lessons() -> None:
    assert {lesson.row for lesson in lessons} == {"M4", "M5", "M6", "G1"}
    assert len({lesson.title for lesson in lessons}) == len(lessons)
    first = [list(lesson.choices).index(lesson.answer(run(lesson.params, silent))) for lesson in lessons[:9]]
    assert len(set(first)) > 1  # the right answer is not always in the same place


def test_the_default_is_a_preset() -> None:
    assert any(lesson.params == Params() for lesson in lessons)


@pytest.mark.parametrize("lesson", lessons, ids=lambda lesson: lesson.title)
def test_a_lesson_is_complete(lesson: Lesson) -> None:
    assert 3 <= len(lesson.choices) <= 4
    assert all(map(str.strip, lesson.choices.values()))
    assert all(map(str.strip, (lesson.requirement, lesson.mechanism, lesson.proof, lesson.recovery)))
    values = vars(lesson.params)
    shown = [k for k in (offered(values, k) for k in knobs(Params).values()) if k]
    assert all(values[k.name] in k.choices for k in shown if k.choices)  # the page keeps the preset as it is
    findings = explain(run(lesson.params, silent))
    assert 1 <= len(findings) <= 5 or lesson.title == "a batch of one"
    for finding in findings:
        assert finding.evidence
        assert finding.text
        for name, value in finding.change.items():
            assert hasattr(lesson.params, name), (name, value)
