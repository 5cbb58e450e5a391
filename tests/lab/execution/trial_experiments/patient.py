"""``typed`` with more time: for programs that must meet another limit first, on a busy machine too."""

from __future__ import annotations

from dataclasses import dataclass

from lab.contract import Finding, Lesson, Limits, Report, check, knob
from tests.lab.execution.trial_experiments import typed
from tests.lab.execution.trial_experiments.typed import Result


@dataclass(frozen=True)
class Params:
    code: str = knob("print('hello')", program=Limits(wall_s=20.0, memory_bytes=256 << 20))
    """The program."""

    def __post_init__(self) -> None:
        check(self)


def run(params: Params, report: Report) -> Result:
    return typed.run(typed.Params(code=params.code), report)


def explain(result: Result) -> tuple[Finding, ...]:
    return typed.explain(result)


lessons: tuple[Lesson, ...] = ()


def script(params: Params) -> str:
    return params.code
