"""Derivatives in words: their numbers against differences, and silence where they are not what the engine handed on."""

from __future__ import annotations

import math
import re

import pytest
import torch

from lab.experiments.autograd_graph import Params, run
from lab.instruments.graph import formula_rules

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
    monkeypatch.setitem(formula_rules.RULES, ("ExpBackward0", 0), formula_rules.Rule("{grad}", lambda v: v["grad"]))
    assert not _texts("loss = x.exp()")


def test_a_hook_that_changes_the_gradient_silences_it() -> None:
    assert re.match("∂x", _texts("loss = x.exp()")["ExpBackward0"])
    assert not _texts("loss = x.exp()\nloss.grad_fn.register_hook(lambda given, came: (given[0] * 2,))")


PROGRAMS = {
    # expression: (node, shapes of a, b and c)
    "torch.addmm(a, b, c, beta=2, alpha=3)": ("AddmmBackward0", [(2,), (2, 3), (3, 2)]),
    "torch.nn.functional.linear(a, b, c)": ("AddmmBackward0", [(2, 3), (2, 3), (2,)]),
    "torch.mv(a, b)": ("MvBackward0", [(2, 3), (3,)]),
    "torch.dot(a, b)": ("DotBackward0", [(3,), (3,)]),
    "torch.bmm(a, b)": ("BmmBackward0", [(2, 2, 3), (2, 3, 2)]),
    "a @ b": ("MmBackward0", [(2, 3), (3, 2)]),
    "a.clamp(min=0.1)": ("ClampBackward1", [(2, 3)]),
    "a.clamp(max=0.1)": ("ClampBackward1", [(2, 3)]),
    "a.clamp(-0.5, 0.5)": ("ClampBackward1", [(2, 3)]),
    "torch.clamp(a, b, c)": ("ClampBackward0", [(2, 3), (), ()]),
    "a.abs().pow(b)": ("PowBackward1", [(2, 3), (3,)]),
    "2.0 ** a": ("PowBackward2", [(2, 3)]),
    "1 - a": ("RsubBackward1", [(2, 3)]),
    "torch.rsub(a, b, alpha=3)": ("RsubBackward0", [(2, 3), (3,)]),
    "a * b": ("MulBackward0", [(2, 3), (3,)]),
    "a / b": ("DivBackward0", [(2, 1), (3,)]),
    "a + b": ("AddBackward0", [(2, 3), ()]),
    "a.sum(1)": ("SumBackward1", [(2, 3)]),
    "a.sum(-2, keepdim=True)": ("SumBackward1", [(2, 3)]),
    "a.mean((0, 2))": ("MeanBackward1", [(2, 2, 3)]),
    "a.amax(1)": ("AmaxBackward0", [(2, 3)]),
    "a.amin()": ("AminBackward0", [(2, 3)]),
    "a.max()": ("MaxBackward1", [(2, 3)]),
    "a.max(-1)[0]": ("MaxBackward0", [(2, 3)]),
    "a.min(0, keepdim=True)[0]": ("MinBackward0", [(2, 3)]),
    "torch.maximum(a, b)": ("MaximumBackward0", [(2, 3), (3,)]),
    "torch.minimum(a, b)": ("MinimumBackward0", [(2, 3), (3,)]),
    "a.var()": ("VarBackward0", [(2, 3)]),
    "a.var(1, correction=0)": ("VarBackward0", [(2, 3)]),
    "a.std((0, 1), keepdim=True)": ("StdBackward0", [(2, 3)]),
    "a.std(-1)": ("StdBackward0", [(2, 3)]),
    "a.softmax(-1)": ("SoftmaxBackward0", [(2, 3)]),
    "a.log_softmax(0)": ("LogSoftmaxBackward0", [(2, 3)]),
    "a.logsumexp(1)": ("LogsumexpBackward0", [(2, 3)]),
    "torch.where(torch.tensor([True, False, True]), a, b)": ("WhereBackward0", [(2, 3), (3,)]),
    "a.masked_fill(torch.tensor([True, False, True]), 0.5)": ("MaskedFillBackward0", [(2, 3)]),
    "a.gather(1, torch.tensor([[0, 0], [2, 1]]))": ("GatherBackward0", [(2, 3)]),
    "a.index_select(-1, torch.tensor([0, 0, 2]))": ("IndexSelectBackward0", [(2, 3)]),
    "a[-1]": ("SelectBackward0", [(2, 3)]),
    "a[:, 0:3:2]": ("SliceBackward0", [(2, 3)]),
    "torch.cat([a, b], -1)": ("CatBackward0", [(2, 3), (2, 1)]),
    "torch.stack([a, b, c], 1)": ("StackBackward0", [(3,), (3,), (3,)]),
    "torch.nn.functional.layer_norm(a, (3,), b, c)": ("NativeLayerNormBackward0", [(2, 3), (3,), (3,)]),
    "torch.nn.functional.layer_norm(a, (2, 3))": ("NativeLayerNormBackward0", [(2, 3)]),
    "torch.nn.functional.mse_loss(a, b)": ("MseLossBackward0", [(2, 3), (2, 3)]),
    "a.log1p()": ("Log1PBackward0", [(2,)]),
    "a.reciprocal()": ("ReciprocalBackward0", [(2,)]),
    "a.abs().rsqrt()": ("RsqrtBackward0", [(2,)]),
    "a.expand(2, 3)": ("ExpandBackward0", [(3,)]),
    "a.view(3, 2)": ("ViewBackward0", [(2, 3)]),
}


def _program(expression: str, shapes: list[tuple[int, ...]]) -> tuple[str, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    inputs = {n: torch.rand(s, generator=generator, dtype=torch.float64) for n, s in zip("abc", shapes, strict=False)}
    lines = [f"{n} = torch.tensor({t.tolist()}, dtype=torch.float64, requires_grad=True)" for n, t in inputs.items()]
    lines += [f"y = {expression}", "k = torch.arange(1.0, y.numel() + 1, dtype=torch.float64).reshape(y.shape)"]
    return "\n".join([*lines, "loss = (y * k.cos()).sum()", "loss.backward()"]), inputs


def _loss(expression: str, inputs: dict[str, torch.Tensor]) -> float:
    y = eval(expression, {"torch": torch}, dict(inputs))
    return float((y * torch.arange(1.0, y.numel() + 1, dtype=torch.float64).reshape(y.shape).cos()).sum())


def _slopes(expression: str, inputs: dict[str, torch.Tensor], name: str) -> list[float]:
    found = []
    for i in range(inputs[name].numel()):
        step = torch.zeros(inputs[name].numel(), dtype=torch.float64)
        step[i] = 1e-6
        up, down = (inputs | {name: inputs[name] + s * step.view_as(inputs[name])} for s in (1, -1))
        found.append((_loss(expression, up) - _loss(expression, down)) / 2e-6)
    return found


def _numbers(text: str) -> list[float]:
    last = text.rpartition(" = ")[2]
    return [float(x.replace("−", "-")) for x in re.findall(r"−?\d[\d.]*(?:e[-−+]?\d+)?", last)]


@pytest.mark.parametrize("expression", [*PROGRAMS])
def test_every_input_gets_the_slope_of_the_program(expression: str) -> None:
    node, shapes = PROGRAMS[expression]
    code, inputs = _program(expression, shapes)
    result = run(Params(code=code), lambda *a, **k: None)
    assert result.fault is None, result.fault
    of = {n.id: n.name for n in result.nodes}
    texts = [t for s in result.backward[0] if of[s.node] == node for t in s.formulas]
    assert texts
    assert all(texts), texts
    told = {t[1 : t.index(" = ")]: t for t in texts}
    assert len(inputs) - 1 <= len(told) == len(texts)
    for name in inputs.keys() & told.keys():
        slopes, numbers = _slopes(expression, inputs, name), _numbers(told[name])
        assert numbers == pytest.approx(slopes[: len(numbers)], rel=1e-4, abs=1e-7), told[name]


@pytest.mark.parametrize("expression", [e for e in PROGRAMS if "abs" not in e][::6])
def test_a_planted_wrong_rule_is_silent(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node, shapes = PROGRAMS[expression]
    for key in [k for k in formula_rules.RULES if k[0] == node]:
        right = formula_rules.RULES[key]
        wrong = right._replace(derivative=lambda v, right=right: right.derivative(v) * 1.001)
        monkeypatch.setitem(formula_rules.RULES, key, wrong)
    result = run(Params(code=_program(expression, shapes)[0]), lambda *a, **k: None)
    of = {n.id: n.name for n in result.nodes}
    assert not any(t for s in result.backward[0] if of[s.node] == node for t in s.formulas)
