"""Waits of programs with their lines; healthy twins that do not wait; what is torch's own is not counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.contract import silent
from lab.experiments.transfers import Params, Result, explain, lessons, run
from lab.experiments.transfers.own_program import lines_in_loops

CASES = Path(__file__).resolve().parents[3] / "cases/transfers_cases.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
}
POINTS = {
    "a loop with three lines too many": "would make the host wait for a GPU 60 times, 3 a step", "where instead of an index": "No line waits",
    "logging now and then": "2 waits, none of them again and again", "clipping by norm": "No line waits", "a transposed copy": "times as long",
}  # fmt: skip


def seen(code: str) -> Result:
    return run(Params(code=code), silent)


@pytest.mark.parametrize("name", ROWS)
def test_a_reported_confusion(name: str):
    result = seen(ROWS[name]["snippet"])
    assert result.fault is None
    if name == "tr-01":
        assert {wait.line for wait in result.waits} == {13}
        assert sum(wait.times for wait in result.waits) == 5


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ("loss.item()", "item()"), ("float(loss)", "float()"), ("int(loss)", "int()"), ("if loss > 0: pass", "a tensor as a condition"),
        ("while loss < 0: pass", "a tensor as a condition"), ("assert loss > -1", "a tensor as a condition"), ("f'{loss:.2f}'", "a tensor in a text"),
        ("x[x > 0]", "a boolean index"), ("x[x > 0] = torch.tensor([5.0, 6.0])", "a boolean index"), ("torch.nonzero(x > 0)", "nonzero()"), ("x.unique()", "unique()"),
        ("x.tolist()", "tolist()"), ("x.numpy()", "numpy()"), ("x.cpu()", "cpu()"), ("print(x)", "printing a tensor"), ("torch.equal(x, x)", "torch.equal"),
        ("not x.isnan().any()", "a tensor as a condition"), ("x.masked_select(x > 0)", "masked_select"), ("[1, 2, 3][x.argmax()]", "a tensor as an index of Python"),
    ],
)  # fmt: skip
def test_a_line_that_waits_is_named(line: str, source: str):
    result = seen(f"x = torch.tensor([1.0, 2.0, 0.0])\nloss = x.sum()\n{line}\n")
    assert result.fault is None
    assert [(wait.line, wait.source, wait.times) for wait in result.waits] == [(3, source, 1)]


@pytest.mark.parametrize(
    "line",
    [
        "torch.where(x > 0, x, 0.0)", "x * (x > 0)", "x[torch.tensor([0, 1])]", "x[1:]", "x.sum().backward()", "torch.nn.utils.clip_grad_norm_([x], 1.0)",
        "x.shape[0]", "len(x)", "x.argmax()", "x.max()", "x.masked_fill(x > 0, 0.0)", "x.to(torch.bfloat16)", "F.dropout(x, 0.5)", "x.detach().clone()",
        "torch.allclose", "x.requires_grad_()",
    ],
)  # fmt: skip
def test_a_line_that_does_not_wait_is_not_named(line: str):
    result = seen(f"x = torch.tensor([1.0, 2.0, 0.0], requires_grad=True)\n{line}\n")
    assert result.fault is None
    assert result.waits == ()


TRAIN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 128)
        self.head = nn.Linear(128, 3)

    def forward(self, x):
        h = self.body(x).relu()
        {inside}
        return self.head(h)

def train(net, loader, optimizer):
    history = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        history.append({kept})
    return history

data = torch.utils.data.TensorDataset(torch.randn(40, 8), torch.randint(0, 3, (40,)))
net = Net()
history = train(net, torch.utils.data.DataLoader(data, batch_size=8), torch.optim.AdamW(net.parameters()))
mean = torch.stack(history).mean() if isinstance(history[0], torch.Tensor) else sum(history) / len(history)
print(float(mean))
"""


def test_a_training_loop_that_keeps_numbers_waits_in_every_step_and_its_twin_once():
    numbers = seen(TRAIN.format(inside="pass", kept="loss.item()"))
    assert numbers.fault is None
    assert [(wait.source, wait.times, wait.in_loop) for wait in numbers.waits] == [("item()", 5, True)]
    assert explain(numbers)[0].level == "warning"
    tensors = seen(TRAIN.format(inside="pass", kept="loss.detach()"))
    assert [(wait.source, wait.times, wait.in_loop) for wait in tensors.waits] == [("float()", 1, False)]
    assert {finding.level for finding in explain(tensors)} == {"fact"}


def test_a_wait_inside_a_module_has_its_line():
    result = seen(TRAIN.format(inside="assert not h.isnan().any()", kept="loss.detach()"))
    inside = next(wait for wait in result.waits if wait.times == 5)
    assert TRAIN.split("\n")[inside.line - 1].strip() == "{inside}"


def test_counters_of_optimizers_and_seeds_of_loaders_are_not_counted():
    code = TRAIN.format(inside="pass", kept="0.0").replace("print(float(mean))", "")
    for optimizer in ("AdamW", "SGD", "Adagrad", "RMSprop"):
        assert seen(code.replace("AdamW", optimizer)).waits == ()


def test_lines_in_loops():
    assert lines_in_loops("a = 1\nfor i in range(3):\n    b = i\n    c = i\nd = 2\nwhile a:\n    a = 0\n") == {
        3,
        4,
        6,
        7,
    }
    assert lines_in_loops("for") == set()


@pytest.mark.parametrize("lesson", lessons, ids=lambda lesson: lesson.title)
def test_the_first_finding_of_a_lesson_is_its_point(lesson):
    result = run(lesson.params, silent)
    assert POINTS[lesson.title] in explain(result)[0].title or (
        lesson.title == "a transposed copy" and lesson.answer(result) != "the transposed one is slower"
    )


def test_the_program_prints_and_computes_the_same(capsys: pytest.CaptureFixture[str]):
    code = TRAIN.format(inside="pass", kept="loss.item()") + "total = sum(p.sum().item() for p in net.parameters())\n"
    result = seen(code)
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(code, names)
    assert result.printed == capsys.readouterr().out
    assert result.values is not None
    assert result.values["total"] == names["total"]


def test_copies_hold_what_was_copied_and_flags_are_tried():
    result = run(Params(view="copies"), silent)
    b = result.bandwidth
    assert len(b.kind) == len(b.bytes) == len(b.seconds) == 15
    assert all(seconds > 0 for seconds in b.seconds)
    assert {flag.call for flag in result.flags} == {
        'x.to("cpu", non_blocking=True)',
        "x.pin_memory()",
        "DataLoader(..., pin_memory=True)",
    }
    if not torch.cuda.is_available():
        assert not any(flag.helps for flag in result.flags)
        assert run(Params(view="overlap"), silent).needs_gpu
