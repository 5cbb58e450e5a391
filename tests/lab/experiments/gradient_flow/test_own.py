"""A visitor's own model: measured, or told what is missing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lab.contract import silent
from lab.experiments.gradient_flow import Params, Result, explain, run
from lab.program.own_model import EXAMPLE


def own(code: str, **settings: Any) -> Result:
    return run(Params(family="own", code=code, **{"steps": 2, **settings}), silent)


def test_the_example_is_measured():
    result = own(EXAMPLE)
    assert [layer.name for layer in result.layers] == ["0", "2", "4"]
    assert all(layer.weight_grad_norm for layer in result.layers)
    assert result.loss_name == "cross-entropy"
    assert result.layers[0].saturated_share is not None  # the tanh behind it
    assert result.fault is None


@pytest.mark.parametrize(
    ("code", "message", "line"),
    [
        ("", "no program yet", None),
        ("model = nn.Linear(2, 1)", "defines no batch", None),
        ("model = nn.Linear(2, 1)\nbatch = torch.ones(3, 5)", "cannot be multiplied", None),
        ("x = 1 / 0", "division by zero", 1),
        ("model = (", "never closed", 1),
        ("model = nn.Linear(2, 1).requires_grad_(False)\nbatch = torch.ones(1, 2)", "requires gradients", None),
        ("model = nn.Linear(2, 1)\nbatch = torch.ones(1, 2)\ndef loss(m, b):\n    return m(b).detach().sum()", "has no graph", None),
        ("model = nn.Linear(2, 1)\nbatch = torch.ones(1, 2)\ndef loss(m, b):\n    return m(b).sum() + b[9, 9]", "out of bounds", 4),
    ],
)  # fmt: skip
def test_a_fault_is_data_with_its_line(code, message, line):
    result = own(code)
    assert result.fault is not None
    assert message in result.fault.message
    assert result.fault.line == line
    explain(result)


def test_none_zero_and_frozen_have_their_reasons():
    code = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare, self.frozen, self.cut = (nn.Linear(1, 1) for _ in range(4))
        self.frozen.requires_grad_(False)
    def forward(self, x):
        self.cut(x)
        return self.used(x) * 0 + self.frozen(x)
model, batch = Net(), torch.ones(4, 1)
"""
    layers = {layer.name: layer for layer in own(code).layers}
    assert layers["used"].weight_grad_norm == 0
    assert layers["used"].why_none.startswith("zero")
    reasons = {name: layers[name].why_none for name in ("spare", "frozen", "cut")}
    assert reasons == {
        "spare": "None: it did not run in the forward pass",
        "frozen": "None: requires_grad is False",
        "cut": "None: it ran, but no path leads from it to the loss",
    }
    assert all(layers[name].weight_grad_norm is None for name in reasons)


def test_hardtanh_on_its_bound_and_clamp():
    program = "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.tensor([3.0]))\n    def forward(self, x):\n        return {} * x\nmodel, batch = M(), torch.ones(1)\nloss = lambda m, b: m(b).sum()\n"
    stuck = own(program.format("F.hardtanh(self.w, -2., 3.)"), lr=0.5)
    free = own(program.format("torch.clamp(self.w, -2., 3.)"), lr=0.5)
    (found,) = (f for f in explain(stuck) if f.title == "Stuck on the bound of hardtanh")
    at = torch.tensor([3.0], requires_grad=True)
    torch.clamp(at, -2.0, 3.0).backward()  # 1 up to torch 2.13, 0 since
    assert at.grad is not None
    slope = at.grad.item()
    assert found.evidence["slope of clamp there"] == slope
    assert ("Use torch.clamp" in found.repair) == (slope == 1)
    assert (stuck.final_loss, free.final_loss) == (3.0, 3.0 - 2 * 0.5 * slope)


def test_a_bias_before_batchnorm_is_no_fault():
    code = "model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))\nbatch = (torch.randn(64, 4), torch.randn(64, 1))"
    assert "A bias before BatchNorm cannot matter" in [f.title for f in explain(own(code))]
    without = code.replace("nn.BatchNorm1d(3), ", "")
    assert "A bias before BatchNorm cannot matter" not in [f.title for f in explain(own(without))]


def test_a_bias_without_effect_elsewhere_is_not_explained_by_batchnorm():
    code = """class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        weights = torch.softmax(self.q(x) @ self.k(x).transpose(1, 2), -1)
        return (weights @ self.v(x)).mean(1)
model = nn.Sequential(nn.Unflatten(1, (3, 4)), Attention(), nn.BatchNorm1d(4), nn.Linear(4, 1))
batch = (torch.randn(64, 12), torch.randn(64, 1))"""
    result = own(code)
    key = next(layer for layer in result.layers if layer.name.endswith("k"))
    assert key.bias_grad_norm is not None
    assert key.weight_grad_norm  # softmax ignores what is added to every score
    assert key.bias_grad_norm < 1e-5 * key.weight_grad_norm
    told = [f.text for f in explain(result) if f.title == "A bias before BatchNorm cannot matter"]
    assert not [text for text in told if key.name in text]


def test_shared_weights_dropout_lstm_embedding_and_sparse_gradients():
    tied = "model = nn.Sequential(nn.Embedding(8, 4, sparse=True), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 3))\nbatch = (torch.randint(0, 8, (16, 2)), torch.randint(0, 3, (16,)))"
    result = own(tied)
    assert result.fault is None
    assert all(layer.weight_grad_norm for layer in result.layers)
    lstm = own("model = nn.LSTM(3, 4)\nbatch = torch.randn(5, 2, 3)")
    assert lstm.layers[0].activation_norm
    twice = own("a = nn.Linear(3, 3)\nmodel = nn.Sequential(a, nn.Tanh(), a)\nbatch = torch.randn(4, 3)", lr=0.0)
    assert len(twice.layers) == 1


def test_printed_output_and_a_nonfinite_operation():
    code = "print('hello')\nclass M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = nn.Linear(2, 2)\n    def forward(self, x):\n        return torch.sqrt(self.inner(x) * 0)\nmodel, batch = M(), torch.ones(3, 2)"
    result = own(code)
    assert result.printed == "hello\n"
    found = result.first_nonfinite
    assert found is not None
    assert (found.operation, found.layer, result.first_nonfinite_step) == ("backward of sqrt", "inner", 1)


RAISING = """class Odd(Exception):
    def __str__(self):
        raise ValueError
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
    def forward(self, x):
        raise {what}
print("before")
model, batch = Net(), torch.ones(3, 2)
"""


@pytest.mark.parametrize(
    ("what", "kind"), [("SystemExit", "SystemExit"), ("KeyboardInterrupt", "KeyboardInterrupt"), ("Odd()", "Odd")]
)
def test_a_model_may_raise_anything(what, kind):
    fault = own(RAISING.format(what=what)).fault
    assert fault is not None
    assert (fault.type, fault.line) == (kind, 9)


@pytest.mark.parametrize(
    "code",
    [
        "class Net(nn.Linear):\n    def named_modules(self, *a, **k):\n        raise KeyError('odd')\nmodel, batch = Net(2, 2), torch.ones(3, 2)",
        "batch = torch.ones(3, 2)",
        "1 / 0",
    ],
)
def test_what_was_printed_is_kept_beside_a_fault(code):
    result = own(f"print('before')\n{code}")
    assert result.fault is not None
    assert result.printed == "before\n"


def test_complex_weights_have_an_update_ratio():
    code = """model = nn.Linear(4, 3, bias=False, dtype=torch.cfloat)
batch = torch.ones(5, 4, dtype=torch.cfloat)
def loss(model, batch):
    return model(batch).abs().mean()
"""
    result = own(code, lr=0.5)
    (layer,) = result.layers
    torch.manual_seed(0)
    size = torch.nn.Linear(4, 3, bias=False, dtype=torch.cfloat).weight.abs().square().sum().sqrt().item()
    assert result.fault is None
    assert layer.weight_grad_norm is not None
    assert layer.update_ratio == pytest.approx(0.5 * layer.weight_grad_norm / size, rel=1e-5)
