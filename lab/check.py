"""Every instrument against its oracle, on this host.

A check returns what it saw and raises AssertionError with what is wrong. Its oracle shares nothing with the instrument:
a difference quotient in float64, a count by hand, the standalone script of a lesson.
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
from lab.contract import Agreement, Lesson, NotAvailableError, silent
from lab.execution.executor import Executor
from lab.execution.perform import find
from lab.execution.sealed import confine
from lab.experiments import autograd_graph
from lab.experiments.autograd_graph import Params, Result
from lab.instruments.memory import self_check as memory_check
from lab.instruments.profiling import self_check as op_trace_check


@dataclass(frozen=True)
class Outcome:
    """One check: what was checked, whether it held, and what was seen."""

    name: str
    ok: bool
    detail: str = ""
    available: bool = True
    """False when this release of torch lacks what the check needs; ``detail`` says why."""


def run_checks(device: str) -> list[Outcome]:
    """All checks, in order, on ``device`` (cpu or cuda). What fails, and why, is in the outcomes."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("torch._dynamo")  # checkpoint would, inside the time limit of a program
    checks: list[tuple[str, Callable[[], str]]] = [
        (name, partial(_self_test, test))
        for tests in (torch_private.SELF_TESTS, memory_check.SELF_TESTS, op_trace_check.SELF_TESTS)
        for name, test in tests.items()
    ]
    if device == "cuda":
        checks.append(("CUDA", _cuda))
    if device == "cpu" or torch.cuda.is_available():
        checks += [(name, partial(check, device)) for name, check in _ORACLES.items()]
        checks += [
            (f"lesson: {lesson.title}", partial(_lesson, experiment, lesson, device))
            for experiment in map(find, names())
            for lesson in experiment.lessons
        ]
    with _one_thread():
        return [_outcome(name, check) for name, check in [*checks, ("walls around typed programs", _walls)]]


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
        with warnings.catch_warnings(action="ignore"):  # presets that show a mistake are warned of it
            return Outcome(name, True, check())
    except NotAvailableError as error:
        return Outcome(name, False, str(error), available=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is why this check failed
        return Outcome(name, False, f"{type(error).__name__}: {error}"[:400])


def _self_test(test: Callable[[], None]) -> str:
    test()
    return ""


def _cuda() -> str:
    assert torch.backends.cuda.is_built(), f"this build of PyTorch ({torch.__version__}) has no CUDA support"
    assert torch.cuda.is_available(), "no CUDA device can be used; look at nvidia-smi"
    return torch.cuda.get_device_name()


def _observe(code: str, device: str) -> Result:
    result = autograd_graph.run(Params(code=code, device=device), silent)
    assert result.fault is None, f"the program ended with {result.fault}"
    return result


_POINT = (0.3, -1.2, 0.8)
_CURVE = """torch.set_default_dtype(torch.float64)
x = torch.tensor({point}, requires_grad=True)
h = torch.sigmoid(x * x)
loss = (h.exp() * x + h).sum()
loss.backward()
"""


def _curve(point: tuple[float, ...]) -> float:
    x = torch.tensor(point, dtype=torch.float64)
    h = 1 / (1 + torch.exp(-x * x))
    return float((torch.exp(h) * x + h).sum())


def _gradient(device: str) -> str:
    (leaf,) = _observe(_CURVE.format(point=_POINT), device).leaves
    step, worst = 1e-6, 0.0
    for at, got in enumerate(leaf.grad):
        ahead, behind = ([x + by * (i == at) for i, x in enumerate(_POINT)] for by in (step, -step))
        quotient = (_curve(tuple(ahead)) - _curve(tuple(behind))) / (2 * step)
        worst = max(worst, abs(got - quotient))
    assert worst < 1e-8, f"the gradient differs by {worst:.1e} from the difference quotient"
    return f"largest difference {worst:.1e}"


def _sums(device: str) -> str:
    result = _observe(_CURVE.format(point=_POINT), device)
    received: dict[int, list[list[float]]] = {}
    for step in result.backward[0]:
        for parent, given in zip(step.parents, step.given, strict=True):
            received.setdefault(parent, []).append(given)
    arrived = {step.node: step.incoming for step in result.backward[0]}
    for node, parts in received.items():
        for total, *numbers in zip(arrived[node], *parts, strict=True):
            assert abs(total - sum(numbers)) < 1e-12, f"node {node} got {numbers}, and {total} arrived"
    several = sum(len(parts) > 1 for parts in received.values())
    assert several, "no node of the program was reached by two paths"
    return f"{several} sums of several paths"


def _order(device: str) -> str:
    result = _observe(_CURVE.format(point=_POINT), device)
    at = {step.node: i for i, step in enumerate(result.backward[0])}
    early = [edge for edge in result.edges if at[edge.source] < at[edge.target]]
    assert not early, f"node {early[0].source} ran before {early[0].target}, which hands a gradient to it"
    return f"{len(at)} nodes"


def _saved_bytes(device: str) -> str:
    """a once for both factors, the output of sigmoid, the output of exp: three times 100 · 4 bytes."""
    code = "a = torch.rand(100, requires_grad=True)\nloss = (a * a).sigmoid().exp().sum()\nloss.backward()\n"
    result = _observe(code, device)
    assert (result.kept_bytes, result.kept_bytes_after) == (1200, 0), f"{result.kept_bytes} B, by hand 1,200 B"
    return "1,200 B before backward, 0 B after"


def _versions(device: str) -> str:
    code = "x = torch.ones(4, requires_grad=True)\ny = x.exp()\ny.add_(1)\ny[0] = 2.0\nloss = y.sum()\n"
    (saved,) = (slot for node in _observe(code, device).nodes for slot in node.saved)
    seen = saved.saved_version, saved.current_version, saved.changed_line
    assert seen == (0, 2, 3), f"versions and line {seen}, by hand (0, 2, 3)"
    return "saved at version 0, now 2, first written on line 3"


def _checkpoint(device: str) -> str:
    code = (
        "from torch.utils.checkpoint import checkpoint\ncalls = []\n"
        "def block(t):\n    calls.append(1)\n    return t.sin()\n"
        "x = torch.ones(4, requires_grad=True)\nloss = checkpoint(block, x, use_reentrant=False).sum()\nloss.backward()\n"
    )
    calls = _observe(code, device).variables["calls"]
    assert len(calls) == 2, f"the block ran {len(calls)} times; forward and one recomputation are 2"
    return "the block ran twice, never for looking"


_ORACLES: dict[str, Callable[[str], str]] = {
    "gradient against a difference quotient": _gradient,
    "contributions sum to what arrives": _sums,
    "engine order": _order,
    "saved bytes against a count by hand": _saved_bytes,
    "versions of saved tensors": _versions,
    "a checkpoint is not recomputed by looking": _checkpoint,
}


def _lesson(experiment: Any, lesson: Lesson, device: str = "cpu") -> str:
    """The number on the page is the last line that the lesson's script prints."""
    params = (
        replace(lesson.params, device=device) if device != getattr(lesson.params, "device", device) else lesson.params
    )
    result = experiment.run(params, silent)
    measured, answer = lesson.evidence(result), lesson.answer(result)
    printed = float(_printed(experiment.script(params)).split()[-1])
    agreement: Agreement = getattr(experiment, "agreement", Agreement())
    said = f"{lesson.evidence_name} is {measured:g}; the script prints {printed:g}"
    assert agreement.holds(lesson.title, measured, printed), said
    assert answer in lesson.choices, f"the answer {answer!r} is not among the choices"
    return f"{lesson.evidence_name} = {measured:g}"


def _printed(script: str) -> str:
    """What a script prints, run in a thread of its own: hooks that it sets stay in that thread."""
    output, raised = io.StringIO(), []

    def execute() -> None:
        names: dict[str, Any] = {"__name__": "__main__"}
        try:
            exec(compile(script, "<script>", "exec"), names)
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            raised.append(error)

    with contextlib.redirect_stdout(output):
        thread = threading.Thread(target=execute)
        thread.start()
        thread.join()
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
