"""Looking changes nothing: a program prints, computes and raises the same as without the instruments.

The oracle is a plain exec of the same text, written here and sharing nothing with the lab.
"""

from __future__ import annotations

import ast
import contextlib
import io
import random
import re
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from lab.contract import silent
from lab.experiments import autograd_graph
from lab.instruments.graph import program_trace, tensor_log
from lab.program import run as program
from lab.program.lines import remember
from lab.program.output import of_the_program
from tests.lab.experiments.autograd_graph.programs_observed import PROGRAMS

NO_VALUE = (types.ModuleType, types.FunctionType, type)
ADDRESS = re.compile(r"0x[0-9a-f]+")


def plainly(code: str) -> dict[str, Any]:
    """What ``code`` does on its own: printed text, last expression, error, warnings, variables."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "math": __import__("math")}
    given, output, echo, error = dict(names), io.StringIO(), "", ""
    names["__name__"] = "__main__"
    tree = ast.parse(code)
    remember(code)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None  # pyright: ignore[reportAttributeAccessIssue]
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(output):
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="(?!__main__)")
        try:
            exec(compile(tree, "<program>", "exec"), names)
            value = eval(compile(last, "<program>", "eval"), names) if last else None
            echo = "" if value is None else repr(value)
        except Exception as raised:  # noqa: BLE001 - it is what is compared
            error = f"{type(raised).__name__}: {raised}"
    torch.set_default_dtype(torch.float32)
    torch.autograd.set_detect_anomaly(False)
    own = {k: v for k, v in names.items() if not k.startswith("_") and v is not given.get(k, names)}
    return {
        "printed": cleaned(output.getvalue()),
        "echo": cleaned(echo),
        "error": cleaned(error),
        "warned": {of_the_program(str(w.message))[:1000] for w in caught},
        "variables": {k: read(v) for k, v in own.items() if not issubclass(type(v), NO_VALUE)},
    }


def observed(code: str) -> dict[str, Any]:
    result = autograd_graph.run(autograd_graph.Params(code=code), silent)
    return {
        "printed": cleaned(result.printed),
        "echo": cleaned(result.echo),
        "error": cleaned(f"{result.fault.type}: {result.fault.message}" if result.fault else ""),
        "warned": {w.text for w in result.warned},
        "variables": {k: v for k, v in result.variables.items() if not isinstance(v, str) or not v.startswith("<")},
    }


def cleaned(text: str) -> str:
    return ADDRESS.sub("0x", text)


def read(value: Any, depth: int = 4) -> Any:
    """Numbers and texts of a variable; None for what this test does not compare."""
    kind = type(value)
    if kind in (bool, float, str) or (kind is int and abs(value) < 1 << 63):
        return value
    if kind in (torch.Tensor, torch.nn.Parameter):
        strange = value.layout is not torch.strided or value.is_nested or value.is_quantized or value.is_complex()
        return value.detach().tolist() if not strange and value.device.type == "cpu" else None
    if depth and kind in (list, tuple) and len(value) < 100:
        return [read(v, depth - 1) for v in value]
    return None


def agrees(expected: Any, got: Any) -> bool:
    """Equal where ``expected`` says something; NaN equals NaN."""
    if expected is None:
        return True
    if isinstance(expected, list):
        return isinstance(got, list) and len(expected) == len(got) and all(map(agrees, expected, got))
    return expected == got or (expected != expected and got != got)


def compare(title: str) -> None:
    code = PROGRAMS[title]
    plainly(code)  # what a first import or a first call warns of is over
    expected, got = plainly(code), observed(code)
    assert got["printed"] == expected["printed"]
    assert (got["echo"], got["error"]) == (expected["echo"], expected["error"])
    assert got["warned"] == expected["warned"]
    for name, value in expected["variables"].items():
        assert agrees(value, got["variables"].get(name)), (name, value, got["variables"].get(name))


@pytest.fixture(autouse=True, scope="module")
def _every_warning() -> Iterator[None]:
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.parametrize("title", PROGRAMS)
def test_observing_changes_nothing(title: str) -> None:
    compare(title)


def draw_number(*args: Any, **kwargs: Any) -> None:
    torch.rand(())


def warn(*args: Any, **kwargs: Any) -> None:
    warnings.warn("seen", stacklevel=1)


HELD: list[Any] = []


@pytest.mark.parametrize(
    ("disturbance", "title"),
    [
        (draw_number, "random numbers"),
        (lambda t: HELD.append(t), "a tensor dies when its last name goes"),
        (lambda t: HELD.append(t.grad_fn), "a graph dies with its loss"),
        (lambda t: HELD.append(t.detach().add_(0)), "overwritten before backward"),
        (warn, "a value used twice"),
    ],
)
def test_a_disturbance_is_noticed(disturbance: Any, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each planted disturbance must make the comparison fail."""
    read = tensor_log._elements

    def disturbed(tensor: torch.Tensor) -> Any:
        disturbance(tensor)
        return read(tensor)

    monkeypatch.setattr(tensor_log, "_elements", disturbed)
    with pytest.raises(AssertionError):
        compare(title)
    HELD.clear()


@pytest.mark.parametrize("place", ["tensor_log._elements", "backward_trace.tensor_value"])
def test_a_fault_of_an_instrument_never_looks_like_one_of_the_program(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise ValueError("a fault of the instrument")

    names = program.namespace()
    monkeypatch.setattr(f"lab.instruments.graph.{place}", fail)
    trace = program_trace.ProgramTrace(program.FILE, names)
    with trace:
        ran = program.run_program(PROGRAMS["a value used twice"], names, wall_s=4.0, printed_bytes=1000)
    assert ran.ended is None
    assert ran.said.printed.startswith("tensor([")
    assert str(trace.broken) == "a fault of the instrument"
    with pytest.raises(RuntimeError, match="could not be recorded"):
        autograd_graph.run(autograd_graph.Params(), silent)


def test_what_is_patched_in_torch_is_put_back() -> None:
    before = torch.autograd.Function.__dict__["apply"], vars(torch.autograd)["_engine_run_backward"]
    observed(PROGRAMS["a class with state and properties"])
    observed("1 / 0\n")
    assert (torch.autograd.Function.__dict__["apply"], vars(torch.autograd)["_engine_run_backward"]) == before
    hooks = vars(torch.nn.modules.module)
    assert not hooks["_global_forward_pre_hooks"]
    assert not hooks["_global_forward_hooks"]
