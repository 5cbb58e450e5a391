"""Derivatives in words: their numbers against differences, and silence where they are not what the engine handed on."""

from __future__ import annotations

import math
import re

import pytest

from lab.experiments.autograd_graph import Params, run
from lab.instruments.graph import formulas

ONE = {
    "MulBackward0": ("x * 0.7", lambda x: x * 0.7),
    "PowBackward0": ("x ** 3", lambda x: x**3),
    "ExpBackward0": ("x.exp()", math.exp),
    "LogBackward0": ("x.log()", math.log),
    "SqrtBackward0": ("x.sqrt()", math.sqrt),
    "SigmoidBackward0": ("x.sigmoid()", lambda x: 1 / (1 + math.exp(-x))),
    "TanhBackward0": ("x.tanh()", math.tanh),
    "ReluBackward0": ("x.relu()", lambda x: max(x, 0.0)),
    "SinBackward0": ("x.sin()", math.sin),
    "CosBackward0": ("x.cos()", math.cos),
    "AbsBackward0": ("x.abs()", abs),
    "NegBackward0": ("-x", lambda x: -x),
    "AddBackward0": ("x + 2", lambda x: x + 2),
    "SubBackward0": ("x - 2", lambda x: x - 2),
}


def _texts(body: str) -> dict[str, str]:
    """Node class to the first text at its step."""
    result = run(
        Params(code=f"x = torch.tensor(1.3, requires_grad=True)\n{body}\nloss.backward()"), lambda *a, **k: None
    )
    assert result.fault is None, result.fault
    names = {node.id: node.name for node in result.nodes}
    return {names[s.node]: s.formulas[0] for s in result.backward[0] if s.formulas and s.formulas[0]}


@pytest.mark.parametrize("node", [*ONE])
def test_the_number_is_the_slope_of_the_program(node: str) -> None:
    expression, function = ONE[node]
    text = _texts(f"loss = {expression}")[node]
    slope = (function(1.3 + 1e-6) - function(1.3 - 1e-6)) / 2e-6
    assert text.startswith("∂x = ")
    assert float(text.rpartition(" = ")[2].replace("−", "-")) == pytest.approx(slope, rel=1e-5)


def test_the_program_s_names_and_numbers_are_put_in() -> None:
    assert _texts("w = torch.tensor(0.5)\ny = x * w\nloss = y * 2")["MulBackward0"] == "∂x = w · ∂ = 0.5 · 2 = 1"


def test_a_wrong_rule_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(formulas.RULES, ("ExpBackward0", 0), ("{grad}", lambda v: v["grad"]))
    assert not _texts("loss = x.exp()")


def test_a_hook_that_changes_the_gradient_silences_it() -> None:
    assert re.match("∂x", _texts("loss = x.exp()")["ExpBackward0"])
    assert not _texts("loss = x.exp()\nloss.grad_fn.register_hook(lambda given, came: (given[0] * 2,))")
