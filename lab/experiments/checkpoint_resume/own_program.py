"""A visitor's program: its own ``save(run)`` and ``load(run, file)`` on the training of the page, or any program that saves and loads."""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from lab.contract import Report
from lab.experiments.checkpoint_resume.going_on import (
    Curve,
    compared,
    gone_on,
    loaded,
    parts_of,
    same,
    stopped,
    without,
)
from lab.experiments.checkpoint_resume.losses import losses_of
from lab.experiments.checkpoint_resume.schema import LEAVE_OUT, Params, Result
from lab.experiments.checkpoint_resume.state_watch import StateWatch
from lab.program import run as program
from lab.program.explain import explain_fault
from lab.records.resume import Resumed
from lab.workloads.resumable_training import TrainingRun, file_of

_SHARE = 0.7


class PairError(ValueError):
    """What is wrong with the visitor's two functions, in one sentence. ``line`` of the program."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def run_own(params: Params, report: Report) -> Result:
    """Faults of the program do not raise: they are in ``fault``."""
    report(0.0, "running the program")
    with program.torch_defaults(params.seed, params.device):
        watch = StateWatch()
        with watch:
            ran = program.run_typed(params, share=_SHARE, names=program.namespace())
            pair = _pair(ran.namespace) if ran.ended is None else None
            if pair is None:
                losses = losses_of(watch, ran.namespace)
                result = Result(
                    view="program", events=tuple(watch.events), losses=losses, values=_numbers(ran.namespace)
                )
                fault = explain_fault(ran.ended) if ran.ended else None
                return replace(result, fault=fault, **ran.said.fields())
        result = _with_pair(params, report, *pair)
        return replace(result, events=tuple(watch.events), **ran.said.fields())


def _pair(names: dict[str, Any]) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """The two functions, where the program defines both for a run of this page."""
    save, load = names.get("save"), names.get("load")
    if not (inspect.isfunction(save) and inspect.isfunction(load)):
        return None
    return (save, load) if _arguments(load) == 2 and _arguments(save) in (1, 2) else None


def _arguments(function: Callable[..., Any]) -> int:
    given = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in given)


def _with_pair(params: Params, report: Report, save: Callable[..., Any], load: Callable[..., Any]) -> Result:
    from lab.experiments.checkpoint_resume.measure import curve_result

    trained, before = stopped(params)
    parts = trained.parts()
    whole = file_of(parts)
    try:
        file = _saved(save, trained)
        resumed_run = loaded(params, lambda run: load(run, io.BytesIO(file)))
    except Exception as error:  # noqa: BLE001 - whatever the visitor's functions raise is what is shown
        return Result(view="program", before=before, fault=explain_fault(error))
    after = resumed_run.parts()
    lost = tuple(name for name in parts if not same(_read(whole, name), after[name]))
    resumed = gone_on(resumed_run)  # at once: the generators are the process's
    straight = gone_on(loaded(params, lambda run: run.load(whole)))  # not from the run that ``save`` got
    chosen = compared("your functions", straight, resumed, params.accumulate, params.stop_after)
    result = replace(
        curve_result(straight, resumed, chosen, before, params),
        parts=parts_of(parts, lost),
        file_bytes=len(file),
    )
    report(0.6, "what each lost part costs", result)
    return replace(result, omissions=tuple(_each(params, whole, straight, lost)))


def _each(params: Params, whole: bytes, straight: Curve, lost: tuple[str, ...]) -> Iterator[Resumed]:
    for choice, names in LEAVE_OUT.items():
        if len(names) == 1 and names[0] in lost:
            yield compared(choice, straight, without(params, whole, choice), params.accumulate, params.stop_after)


def _read(whole: bytes, name: str) -> Any:
    return torch.load(io.BytesIO(whole), weights_only=True)[name]


def _saved(save: Callable[..., Any], run: TrainingRun) -> bytes:
    """What ``save`` returned as a file, or wrote into the file that it was given."""
    if _arguments(save) == 2:
        file = io.BytesIO()
        save(run, file)
        return file.getvalue()
    answer = save(run)
    if isinstance(answer, io.BytesIO):
        return answer.getvalue()
    if isinstance(answer, (bytes, bytearray)):
        return bytes(answer)
    if answer is None:
        raise PairError(
            "save(run) returned None: return what is to be stored, such as a dict of state dicts.", _line(save)
        )
    return file_of(answer)


def _line(function: Callable[..., Any]) -> int | None:
    with contextlib.suppress(AttributeError):
        return function.__code__.co_firstlineno
    return None


def _numbers(names: dict[str, Any]) -> dict[str, float]:
    """Plain numbers and truth values that the program left, also those in a dict called result."""
    found = {k: v for k, v in names.items() if not k.startswith("_")}
    inner = names.get("result")
    if isinstance(inner, dict):
        found |= {k: v for k, v in inner.items() if isinstance(k, str)}
    return {k: float(v) for k, v in found.items() if type(v) in (bool, int, float)}
