"""One run of one experiment in this process, wire form in and wire form out.

``perform`` serves the worker, the sealed child and the tests; ``answer`` is the same with every ending as data;
``read_answer`` is the other end, which trusts none of it.
"""

from __future__ import annotations

import json
import os
import re
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, Protocol, TypeVar, get_type_hints

from lab import wire
from lab.contract import Cancelled, Fault, Finding, NotAvailableError, ParamsError, Report, program_knob
from lab.execution import faults
from lab.execution.jobs import Outcome

PACKAGE = "lab.experiments"
ANSWER_BYTES = 32 << 20
"""Longest answer on the wire."""
_NODES = 50_000
_ITEMS = 200_000
_CONTAINERS = 2_000_000
"""Lists and objects in an answer: each costs the reader some 60 bytes before anything can be checked."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Answer:
    """What comes back beside the result."""

    kind: Literal["answer"]
    state: Literal["done", "failed", "refused", "limit", "cancelled"]
    findings: tuple[Finding, ...] = ()
    fault: Fault | None = None
    trace: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Part:
    """What comes beside a result that is not finished."""

    kind: Literal["part"]
    findings: tuple[Finding, ...] = ()


T = TypeVar("T", Answer, Part)


class AnswerError(ValueError):
    """The answer is not one. The message says why."""


class AnswerTooLargeError(AnswerError):
    """The answer is one, and too large to be drawn."""


def find(experiment: str, package: str = PACKAGE) -> ModuleType:
    """The experiment's module. Raises ValueError for a name that cannot be one, ModuleNotFoundError when there is none."""
    if not experiment.isidentifier() or experiment.startswith("_"):
        raise ValueError(f"{experiment!r:.80} is not the name of an experiment")
    return import_module(f"{package}.{experiment}")


@cache
def types_of(module: ModuleType) -> tuple[type, type]:
    """Its ``Params`` and ``Result``, as ``run`` is annotated."""
    hints = get_type_hints(module.run)
    return hints["params"], hints["return"]


def device_of(params: Any) -> str:
    """Where it wants to run; an experiment without the choice runs on the CPU."""
    return getattr(params, "device", "cpu")


def is_ours(module: ModuleType, params: Any) -> bool:
    """No visitor's program in it: there is none, or it is the default's or a lesson's, unchanged."""
    knob = program_knob(type(params))
    if knob is None:
        return True
    ours = {knob.default, *(getattr(lesson.params, knob.name) for lesson in module.lessons)}
    return getattr(params, knob.name) in ours


def perform(experiment: str, params_data: dict[str, Any], report: Report, *, package: str = PACKAGE) -> dict[str, Any]:
    """Run, and return ``result`` and ``findings`` in wire form and the ``seconds`` that ``run`` took.

    Raises WireError or ParamsError for parameters outside their limits, Cancelled when ``report`` does, and whatever
    the experiment raises.
    """
    module = find(experiment, package)
    return _measure(module, wire.decode(types_of(module)[0], params_data), report)


def _measure(module: ModuleType, params: Any, report: Report) -> dict[str, Any]:
    started = time.perf_counter()
    result = module.run(params, report)
    seconds = time.perf_counter() - started
    result, cause = _explained(module, params, result, seconds, report)
    return {**_told(module, result, cause), "seconds": seconds}


def _told(module: ModuleType, result: Any, cause: Sequence[Finding] = ()) -> dict[str, Any]:
    return {"result": wire.encode(result), "findings": wire.encode((*cause, *module.explain(result)))}


def _explained(
    module: ModuleType, params: Any, result: Any, seconds: float, report: Report
) -> tuple[Any, tuple[Finding, ...]]:
    """The result with the cause of its program's fault, and the finding about that, as the experiment tells them that knows
    programs best: one explanation on every page. It runs the program once more, and counts only where that ends alike.
    """
    fault, knob = getattr(result, "fault", None), program_knob(type(params))
    package, _, name = module.__name__.rpartition(".")
    best = getattr(import_module(package), "EXPLAINER", name)
    if fault is None or not fault.line or knob is None or knob.program is None or best == name:
        return result, ()
    if fault.sites:  # the experiment's own record names the cause
        return result, ()
    if os.environ.get("LAB_TYPED_CODE") == "trusted":  # without walls a second run could write a file twice
        return result, ()
    if fault.type in ("Refused", "TimeLimit", "MemoryLimit", "OutputLimit") or seconds > knob.program.wall_s / 5:
        return result, ()
    explainer = find(best, package)
    own = types_of(explainer)[0]
    shared = {n: getattr(params, n) for n in own.__dataclass_fields__ if hasattr(params, n)}
    looked = explainer.run(own(**shared), _without_parts(report))
    if looked.fault is None or _ending(looked.fault) != _ending(fault):
        return result, ()
    told = tuple(f for f in explainer.explain(looked) if f.level == "fault")[:1]
    return replace(result, fault=looked.fault), told


def _without_parts(report: Report) -> Report:
    """``report`` without parts: those are of another experiment."""
    return lambda fraction, line, part=None: report(fraction, line)


def _ending(fault: Fault) -> tuple[str, str, int | None]:
    return fault.type, fault.message, fault.line


class Tell(Protocol):
    """``Report`` towards another process: a part goes as JSON text."""

    def __call__(self, fraction: float, line: str, part: str = "") -> None: ...


def _report(module: ModuleType, tell: Tell) -> Report:
    def report(fraction: float, line: str, part: Any = None) -> None:
        text = "" if part is None else _dumps({"kind": "part", **_told(module, part)})
        tell(fraction, line, text if len(text) <= ANSWER_BYTES else "")

    return report


def answer(experiment: str, params_data: dict[str, Any], tell: Tell, *, package: str = PACKAGE) -> str:
    """``perform`` with every ending as data: JSON text of an ``Answer``, with ``result`` beside it."""
    text = _dumps(_answer(experiment, params_data, tell, package))
    if len(text) > ANSWER_BYTES:
        what = f"The result has {len(text):,} bytes; the limit is {ANSWER_BYTES:,}."
        text = _dumps(_ended("limit", faults.output_limit(what)))
    return text


def _answer(experiment: str, params_data: dict[str, Any], tell: Tell, package: str) -> dict[str, Any]:
    try:
        module = find(experiment, package)
        params = wire.decode(types_of(module)[0], params_data)
    except (wire.WireError, ParamsError) as error:
        return _ended("refused", faults.refused(str(error), "Choose a value inside the limits."))
    try:
        return {"kind": "answer", "state": "done", **_measure(module, params, _report(module, tell))}
    except Cancelled:
        return _ended("cancelled", faults.cancelled())
    except NotAvailableError as error:
        return _ended("refused", faults.not_available(str(error)))
    except BaseException as error:  # noqa: BLE001 - whatever ended the run is what the operator must see
        if _out_of_memory(error):
            return _ended("limit", faults.memory_limit(None))
        return _ended("failed", faults.broken(error), traceback.format_exc()[-8000:])


def _dumps(data: dict[str, Any]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _ended(state: str, fault: Fault, trace: str = "") -> dict[str, Any]:
    return {"kind": "answer", "state": state, "fault": wire.encode(fault), "trace": trace}


def _out_of_memory(error: BaseException) -> bool:
    """Python's MemoryError, torch's OutOfMemoryError on a device, torch's RuntimeError on the CPU."""
    named = type(error).__name__ in ("MemoryError", "OutOfMemoryError")
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def read_answer(result_type: type, text: str, *, sealed: bool) -> Outcome:
    """Check an answer against its schema. Raises AnswerError."""
    told, result = _read(Answer, result_type, text)
    if (told.state == "done") == (told.fault is not None):
        raise AnswerError(f"{told.state} with fault {told.fault!r:.80}")
    if (told.state == "done") != (result is not None):
        raise AnswerError(f"{told.state} {'with' if result else 'without'} a result")
    return Outcome(told.state, result, told.findings, told.fault, told.trace, told.seconds, sealed, len(text))


def read_part(result_type: type, text: str, *, sealed: bool) -> Outcome:
    """Check a part, the Result as far as it is finished, against its schema. Raises AnswerError."""
    told, result = _read(Part, result_type, text)
    if result is None:
        raise AnswerError("a part without a result")
    return Outcome("running", result, told.findings, sealed=sealed, wire_bytes=len(text))


def _read(kind: type[T], result_type: type, text: str) -> tuple[T, Any]:
    if text.count("[") + text.count("{") > _CONTAINERS:
        raise AnswerTooLargeError(f"The result has more than {_CONTAINERS:,} lists and objects.")
    try:
        data = wire.loads(text)
        if not isinstance(data, dict):
            raise AnswerError("not an object")
        if len(text) > _NODES:  # shorter text holds no list that is too long
            _check_sizes(data)
        if _SURROGATE.search(text):
            data = _without_lone_surrogates(data)
        body = data.pop("result", None)
        return wire.decode(kind, data), None if body is None else wire.decode(result_type, body)
    except (wire.WireError, RecursionError) as error:
        raise AnswerError(str(error)) from None


def _check_sizes(data: Any) -> None:
    todo = [data]
    while todo:
        item = todo.pop()
        if len(item) > _ITEMS:
            raise AnswerTooLargeError(f"The result has a list of {len(item):,} items; the limit is {_ITEMS:,}.")
        if isinstance(item, dict):
            nodes = item.get("nodes")
            if isinstance(nodes, list) and len(nodes) > _NODES:
                raise AnswerTooLargeError(f"The result has {len(nodes):,} nodes; the limit is {_NODES:,}.")
            item = item.values()
        todo += [value for value in item if type(value) in (list, dict)]


def _without_lone_surrogates(data: Any) -> Any:
    """No UTF-8 text can hold half a surrogate pair: each becomes U+FFFD."""
    if isinstance(data, str):
        return data.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(data, list):
        return [_without_lone_surrogates(v) for v in data]
    if isinstance(data, dict):
        return {_without_lone_surrogates(k): _without_lone_surrogates(v) for k, v in data.items()}
    return data
