"""Every instrument against its oracle, and every lesson of every page against its script, on this host.

A check returns what it saw and raises AssertionError with what is wrong. Its oracle shares nothing with the instrument:
a difference quotient in float64, a count by hand, a closed form, the standalone script of a lesson.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from lab import experiments, torch_private
from lab.contract import Agreement, Lesson, NotAvailableError, agreement, silent
from lab.execution.executor import Executor
from lab.execution.perform import find
from lab.execution.sealed import confine
from lab.experiments.autograd_graph import self_check as graph_check
from lab.experiments.tensor_anatomy import self_check as tensors_check
from lab.instruments.gradients import self_check as gradients_check
from lab.instruments.memory import self_check as memory_check
from lab.instruments.modes import self_check as modes_check
from lab.instruments.profiling import self_check as op_trace_check

SELF_TESTS = memory_check.SELF_TESTS | op_trace_check.SELF_TESTS
"""Instruments that are tried on the CPU; the others are tried on the device."""
ORACLES = graph_check.ORACLES | gradients_check.ORACLES | modes_check.ORACLES | tensors_check.ORACLES
Check = tuple[str, Callable[[], str]]


@dataclass(frozen=True)
class Outcome:
    """One check: what was checked, whether it held, and what was seen."""

    name: str
    ok: bool
    detail: str = ""
    available: bool = True
    """False when this release of torch lacks what the check needs, which pages refuse; ``detail`` says why."""


def run_checks(device: str) -> list[Outcome]:
    """All checks, in order, on ``device`` (cpu or cuda). What fails, and why, is in the outcomes."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("torch._dynamo")  # checkpoint would, inside the time limit of a program
    with _one_thread(), warnings.catch_warnings(action="ignore"):  # presets that show a mistake are warned of it
        return [_outcome(name, check) for name, check in _checks(device)]


def _checks(device: str) -> Iterator[Check]:
    for name, test in torch_private.SELF_TESTS.items():
        yield name, partial(_private, test)
    for name, test in SELF_TESTS.items():
        yield name, partial(_silent, test)
    if device == "cuda":
        yield "CUDA", _cuda
    if device == "cpu" or torch.cuda.is_available():
        for name, oracle in ORACLES.items():
            yield name, partial(oracle, device)
        for experiment in map(find, names()):
            for lesson in experiment.lessons:
                yield f"lesson: {lesson.title}", partial(_lesson, experiment, lesson, device)
    yield "walls around typed programs", _walls


def names() -> list[str]:
    """Every experiment there is."""
    return sorted(module.name for module in pkgutil.iter_modules(experiments.__path__))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """As in the workers: sums over several threads may differ in their last digit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _outcome(name: str, check: Callable[[], str]) -> Outcome:
    try:
        return Outcome(name, True, check())
    except NotAvailableError as error:
        return Outcome(name, False, str(error), available=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is why this check failed
        return Outcome(name, False, _reason(error))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:400]


def _silent(test: Callable[[], None]) -> str:
    test()
    return ""


def _private(test: Callable[[], None]) -> str:
    """What rests on private names of torch is refused where they are not as they were: no number is wrong."""
    try:
        return _silent(test)
    except Exception as error:
        raise NotAvailableError(_reason(error)) from error


def _cuda() -> str:
    assert torch.backends.cuda.is_built(), f"this build of PyTorch ({torch.__version__}) has no CUDA support"
    assert torch.cuda.is_available(), "no CUDA device can be used; look at nvidia-smi"
    return torch.cuda.get_device_name()


def _lesson(experiment: Any, lesson: Lesson, device: str) -> str:
    """The number on the page is the last line that the lesson's script prints. Times get a second try."""
    near = agreement(experiment)
    smaller = near.smaller.get(lesson.title, {})
    knobs = {"device": device} if hasattr(lesson.params, "device") else {}
    params = replace(lesson.params, **knobs, **smaller)
    try:
        seen = _agrees(experiment, lesson, params, near)
    except AssertionError:
        if not near.timed(lesson.title):
            raise
        seen = _agrees(experiment, lesson, params, near)
    return seen + "".join(f", with {name} = {value}" for name, value in smaller.items())


def _agrees(experiment: Any, lesson: Lesson, params: Any, near: Agreement) -> str:
    result = experiment.run(params, silent)
    measured, answer = lesson.evidence(result), lesson.answer(result)
    apart = not near.timed(lesson.title)  # a thread that is new to torch is slow at first
    printed = float(_printed(experiment.script(params), apart).split()[-1])
    said = f"{lesson.evidence_name} is {measured:g}; the script prints {printed:g}"
    assert near.holds(lesson.title, measured, printed), said
    assert answer in lesson.choices, f"the answer {answer!r} is not among the choices"
    return f"{lesson.evidence_name} = {measured:g}"


def _printed(script: str, apart: bool = True) -> str:
    """What a script prints. ``apart`` in a thread of its own: hooks that it sets stay in that thread."""
    output, raised = io.StringIO(), []

    def execute() -> None:
        names: dict[str, Any] = {"__name__": "__main__"}
        try:
            exec(compile(script, "<script>", "exec"), names)
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            raised.append(error)

    with contextlib.redirect_stdout(output):
        if apart:
            thread = threading.Thread(target=execute)
            thread.start()
            thread.join()
        else:
            execute()
    if raised:
        raise raised[0]
    return output.getvalue()


def _walls() -> str:
    """Off, or a system that cannot have walls, is no fault. Walls that do not hold where they could are one."""
    executor = Executor()
    try:
        typed = executor.typed_code()
    finally:
        executor.close()
    assert typed.available or typed.mode == "off" or confine.why_not(), typed.reason
    return typed.reason or f"they hold ({typed.mode})"
