"""One executor for all tests that need the walls, and the way to run a program in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from lab.execution.executor import Executor, Job
from tests.lab.execution.trial_experiments import typed

TRIALS = "tests.lab.execution.trial_experiments"
RunProgram = Callable[..., Job]


def finish(executor: Executor, job_id: str, limit_s: float = 60.0) -> Job:
    job = executor.wait(job_id, limit_s)
    assert job.over, f"{job} is not over after {limit_s} s"
    return job


@pytest.fixture(scope="session")
def sealed() -> Iterator[Executor]:
    executor = Executor(package=TRIALS, typed_code="sealed", program_slots=2)
    assert executor.typed_code().available
    yield executor
    executor.close()


@pytest.fixture(scope="session")
def run_program(sealed: Executor) -> RunProgram:
    visitors = itertools.count()

    def run(code: str, experiment: ModuleType = typed) -> Job:
        name, params = experiment.__name__.rpartition(".")[2], experiment.Params(code=code)
        return finish(sealed, sealed.submit(name, params, visitor=f"v{next(visitors)}", fresh=True))

    return run
