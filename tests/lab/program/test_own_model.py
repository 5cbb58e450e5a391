"""The visitor's own model: which loss a program stands for, and what is said when something is missing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lab.program import run as program
from lab.program.own_model import EXAMPLE, OwnModel, OwnModelError, own_model

LINEAR = "torch.manual_seed(0)\nmodel = nn.Linear(3, 4)\nx = torch.randn(5, 3)\n"


def read(code: str) -> OwnModel:
    names = program.namespace()
    ran = program.run_program(code, names, wall_s=10, printed_bytes=1000)
    assert ran.ended is None, ran.ended
    return own_model(names)


def refused(code: str) -> OwnModelError:
    with pytest.raises(OwnModelError) as caught:
        read(code).loss()
    return caught.value


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ("x", lambda out, x: (out**2).sum() / out.numel()),
        ("(x,)", lambda out, x: (out**2).sum() / out.numel()),
        ("(x, torch.arange(5) % 4)", lambda out, x: -out.log_softmax(1)[range(5), [i % 4 for i in range(5)]].mean()),
        ("[x, torch.zeros(5, 4)]", lambda out, x: (out**2).mean()),
        ("{'input': x, 'labels': torch.ones(5, 4)}", lambda out, x: ((out - 1) ** 2).mean()),
        ("{'pixels': x}", lambda out, x: (out**2).mean()),
    ],
)
def test_the_default_rule(batch, expected):
    own = read(f"{LINEAR}batch = {batch}")
    output = own.model(*own.inputs)
    torch.testing.assert_close(own.loss(), expected(output, own.inputs[0]))


def test_classes_may_come_last():
    own = read("model = nn.Embedding(7, 7)\nt = torch.arange(6).reshape(2, 3)\nbatch = (t, t)")
    scores = own.model.weight.log_softmax(1)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    torch.testing.assert_close(own.loss(), -scores.diag()[:6].mean())


def test_a_flat_target_is_not_broadcast():
    own = read("model = nn.Linear(3, 1)\nbatch = (torch.arange(15.0).reshape(5, 3), torch.arange(5.0))")
    output = own.model(*own.inputs)
    torch.testing.assert_close(own.loss(), ((output[:, 0] - torch.arange(5.0)) ** 2).mean())
    # the planted error: what broadcasting would have given is another number
    assert not torch.isclose(own.loss(), ((output - torch.arange(5.0)) ** 2).mean())


def test_a_loss_of_the_program_comes_first():
    own = read(f"{LINEAR}batch = x\ndef loss(model, batch):\n    return 3 * model(batch).sum()")
    torch.testing.assert_close(own.loss(), 3 * own.model(own.inputs[0]).sum())


def test_a_criterion_is_applied_to_output_and_target():
    own = read(f"{LINEAR}batch = (x, torch.zeros(5, 4))\nloss = nn.L1Loss()")
    torch.testing.assert_close(own.loss(), own.model(own.inputs[0]).abs().mean())


def test_arguments_go_by_name_and_nested_inputs_are_spread():
    two = "class Two(nn.Module):\n    def forward(self, a, b):\n        return a - b\nmodel = Two()\n"
    by_name = read(f"{two}batch = {{'b': torch.ones(1), 'a': torch.full((1,), 5.0)}}")
    assert [t.item() for t in by_name.inputs] == [5.0, 1.0]
    for batch in ("((torch.ones(1), torch.zeros(1)), torch.ones(1))", "(torch.ones(1), torch.zeros(1), torch.ones(1))"):
        assert read(f"{two}batch = {batch}").loss().item() == 0.0


def test_an_lstm_returns_a_tuple():
    own = read("model = nn.LSTM(3, 4)\nbatch = torch.ones(2, 1, 3)")
    torch.testing.assert_close(own.loss(), own.model(*own.inputs)[0].square().mean())


def test_the_example_runs():
    own = read(EXAMPLE)
    assert own.target is not None
    torch.testing.assert_close(own.loss(), F.cross_entropy(own.model(*own.inputs), own.target))


@pytest.mark.parametrize(
    ("code", "said", "line"),
    [
        ("", "defines no model", None),
        ("model = nn.Linear(1, 1)", "defines no batch", None),
        ("x = 1\nmodel = nn.Linear", "the class Linear; create it", 2),
        ("model = lambda x: x\nbatch = torch.ones(1)", "function, not an nn.Module", 1),
        ("model = nn.Linear(1, 1)\nbatch = 7", "batch is int", 2),
        ("model = nn.Linear(1, 1)\nbatch = (torch.ones(1, 1), 7)", "target in batch is int", 2),
        ("model = nn.Linear(1, 1)\nbatch = torch.ones(1, 1)\nloss = model(batch)", "not a function", 3),
        ("model = nn.Linear(1, 1)\nbatch = (torch.ones(4, 1), torch.ones(3))", "(4, 1), the target (3,)", 2),
        ("model = nn.Linear(1, 1)\nbatch = (torch.ones(4, 1), torch.ones(4).long())", "one output per", 2),
        ("model = nn.Linear(1, 1)\nbatch = torch.ones(4, 1)\ndef loss(m, b):\n    return m(b)", "one number", 3),
        ("model = nn.Linear(1, 1)\nbatch = torch.ones(4, 1)\ndef loss(m, b):\n    return 1.0", "a tensor", 3),
        ("class M(nn.Module):\n    def forward(self, x): return 'no'\nmodel = M()\nbatch = torch.ones(1)", "str", None),
    ],
)
def test_what_is_missing_is_said_with_its_line(code, said, line):
    error = refused(code)
    assert said in str(error)
    assert error.line == line


TRAINED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
    def forward(self, x):
        return self.body(x)
net = Net()
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = [(torch.randn(5, 3), torch.arange(5) % 4) for _ in range(2)]
for xb, yb in loader:
    optimizer.zero_grad()
    loss = criterion(net(xb), yb)
    loss.backward()
    optimizer.step()
"""
GPT = """
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 7)
    def forward(self, idx, targets=None):
        logits = self.table(idx)
        if targets is None:
            return logits[:, [-1]], None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())
model = GPT()
idx = torch.arange(6).reshape(2, 3)
"""


def test_a_training_loop_leaves_model_loss_and_batch():
    own = read(TRAINED)
    assert type(own.model).__name__ == "Net"
    output, target = own.model(*own.inputs), own.target
    torch.testing.assert_close(own.loss(), F.cross_entropy(output, target, label_smoothing=0.1))  # pyright: ignore[reportArgumentType]
    assert own.loss_name == "CrossEntropyLoss"


@pytest.mark.parametrize("batch", ["batch = (idx, idx)", "batch = {'idx': idx, 'targets': idx}", "targets = idx"])
def test_a_forward_that_takes_the_target_gets_it_and_its_loss_counts(batch):
    own = read(GPT + batch)
    scores = own.model.table.weight.log_softmax(1)  # pyright: ignore
    torch.testing.assert_close(own.loss(), -scores.diag()[:6].mean())


@pytest.mark.parametrize(
    "returned", ["Out(loss, out)", "{'loss': loss, 'logits': out}", "(loss, out)", "(out, loss)", "loss"]
)
def test_a_loss_that_the_model_returns_counts_in_every_form(returned):
    own = read(
        "from dataclasses import dataclass\n@dataclass\nclass Out:\n    loss: object\n    logits: object\n"
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(3, 4)\n"
        f"    def forward(self, x, labels):\n        out = self.a(x)\n        loss = (out - labels).abs().mean()\n        return {returned}\n"
        "model = M()\nbatch = {'x': torch.ones(5, 3), 'labels': torch.zeros(5, 4)}\n"
    )
    torch.testing.assert_close(own.loss(), own.model.a(torch.ones(5, 3)).abs().mean())  # pyright: ignore


def test_a_criterion_that_is_a_function_takes_output_and_target():
    own = read(
        "net = nn.Linear(3, 4)\nX, y = torch.randn(5, 3), torch.zeros(5, 4)\ndef loss_fn(out, t):\n    return (out - t).abs().sum()\n"
    )
    torch.testing.assert_close(own.loss(), own.model(*own.inputs).abs().sum())


def test_two_modules_are_asked_about():
    assert "maker, judge" in str(refused("maker, judge = nn.Linear(1, 1), nn.Linear(1, 1)\nbatch = torch.ones(1, 1)"))
