"""Programs that fine-tune: each planted fault has a twin that differs in one line and draws no warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.contract import Finding, silent
from lab.experiments.fine_tuning import Params, Result, explain, run

CASES = Path(__file__).resolve().parents[3] / "cases/fine_tuning_cases.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
}
CAUSES = {
    "ft-02": "not held when it had a gradient", "ft-04": "stuck at zero", "ft-05": "cut by checkpoint", "ft-06": "eval trains",
    "ft-07": "woken", "ft-08": "frozen moves", "ft-09": "left out",
}  # fmt: skip


def seen(code: str) -> Result:
    return run(Params(view="own", code=code), silent)


def told(code: str) -> list[Finding]:
    return [finding for finding in explain(seen(code)) if finding.level != "fact"]


@pytest.mark.parametrize("name", ROWS)
def test_a_reported_confusion(name: str):
    row = ROWS[name]
    result = seen(row["snippet"])
    assert result.fault is None
    assert result.surprises[0].cause == CAUSES[name]
    assert explain(result)[0].line == row["culprit_line"]


HEAD = """
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64))
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.backbone(x))

def batches(count):
    for step in range(count):
        yield torch.randn(16, 6), torch.randint(0, 3, (16,))

def train(model, optimizer, count=6):
    model.train()
    for step, (x, y) in enumerate(batches(count)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print("step", step)

torch.manual_seed(0)
model = Net(5)
"""
FAULTY = {
    "stale": "optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)\nmodel.head = nn.Linear(64, 3)\ntrain(model, optimizer)\n",
    "left out": "model.head = nn.Linear(64, 3)\noptimizer = torch.optim.Adam(model.backbone.parameters(), lr=1e-2)\ntrain(model, optimizer)\n",
    "frozen moves": """model.head = nn.Linear(64, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
train(model, optimizer, 3)
model.backbone.requires_grad_(False)
model.backbone.eval()
for x, y in batches(4):
    optimizer.zero_grad(set_to_none=False)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
""",
    "woken": """model.head = nn.Linear(64, 3)
model.backbone.requires_grad_(False)
model.backbone.eval()
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
train(model, optimizer)
""",
    "statistics move": """model.head = nn.Linear(64, 3)
model.backbone.requires_grad_(False)
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
train(model, optimizer)
""",
    "eval trains": """model.head = nn.Linear(64, 3)
model.eval()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for x, y in batches(3):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
""",
    "nothing moved": """model.head = nn.Linear(64, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for x, y in batches(3):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
""",
}
HEALTHY = {
    "head first": "model.head = nn.Linear(64, 3)\noptimizer = torch.optim.Adam(model.parameters(), lr=1e-2)\ntrain(model, optimizer)\n",
    "two groups": """model.head = nn.Linear(64, 3)
groups = [{"params": model.backbone.parameters(), "lr": 1e-3}, {"params": model.head.parameters(), "lr": 1e-2}]
optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
train(model, optimizer)
""",
    "frozen with both switches": """model.head = nn.Linear(64, 3)
model.backbone.requires_grad_(False)
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
for x, y in batches(5):
    model.train()
    model.backbone.eval()
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
""",
    "two optimizers": """model.head = nn.Linear(64, 3)
first = torch.optim.Adam(model.backbone.parameters(), lr=1e-3)
second = torch.optim.SGD(model.head.parameters(), lr=1e-2)
model.train()
for x, y in batches(5):
    first.zero_grad(); second.zero_grad()
    F.cross_entropy(model(x), y).backward()
    first.step(); second.step()
""",
    "a teacher beside it": """import copy
teacher = copy.deepcopy(model).eval()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
train(model, optimizer)
with torch.no_grad():
    teacher(torch.randn(4, 6))
""",
    "evaluated between": """model.head = nn.Linear(64, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    train(model, optimizer, 3)
    model.eval()
    with torch.no_grad():
        model(torch.randn(4, 6))
""",
    "frozen midway with None": """model.head = nn.Linear(64, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
train(model, optimizer, 3)
model.backbone.requires_grad_(False)
model.backbone.eval()
for x, y in batches(4):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
""",
    "a large tensor": """table = nn.Embedding(10_000, 8)
net = nn.Linear(8, 2)
optimizer = torch.optim.SGD([*table.parameters(), *net.parameters()], lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    net(table(torch.randint(0, 10_000, (32,)))).square().mean().backward()
    optimizer.step()
""",
}


@pytest.mark.parametrize("cause", FAULTY)
def test_a_planted_fault_comes_first(cause: str):
    result = seen(HEAD + FAULTY[cause])
    assert result.fault is None
    assert result.surprises[0].cause == cause
    first = explain(result)[0]
    assert first.level != "fact"
    assert first.line is None or first.line > 13  # past the class


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_twin_draws_no_warning(name: str):
    code = HEAD + HEALTHY[name]
    result = seen(code)
    assert result.fault is None
    assert result.steps
    assert not told(code)


def test_the_pair_of_functions_and_its_twin():
    code = Params(view="own").code
    assert seen(code).surprises[0].cause == "stale"
    first, second = (
        "    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)\n",
        '    model["head"] = nn.Linear(32, 3)\n',
    )
    assert first + second in code
    repaired = code.replace(first + second, second + first)
    assert {one.cause for one in seen(repaired).surprises} == {"statistics move"}


def test_functions_that_only_prepare_are_tried_by_one_step():
    code = "def make_model():\n    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))\n\ndef fine_tune(model):\n    model[0].requires_grad_(False)\n    return torch.optim.SGD(model.parameters(), lr=0.1)\n"
    moved = {row.name: row.distance > 0 for row in seen(code).moved}
    assert moved == {"model.0.weight": False, "model.0.bias": False, "model.1.weight": True, "model.1.bias": True}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def fine_tune(model):\n    return None\n", "no model"),
        ("def make_model():\n    return 3\n\ndef fine_tune(model):\n    return None\n", "returned int"),
        ("def make_model():\n    return nn.Linear(1, 1)\n\ndef fine_tune(model):\n    return None\n", "made no optimizer"),
        ("model = nn.Linear(2, 2)\nmodel(torch.ones(3))\n", "shapes"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(code: str, words: str):
    fault = seen(code).fault
    assert fault is not None
    assert words in fault.message


def test_a_program_prints_and_computes_the_same_without_the_watch(capsys: pytest.CaptureFixture[str]):
    code = HEAD + HEALTHY["evaluated between"] + "total = sum(p.sum().item() for p in model.parameters())\n"
    result = seen(code)
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(code, names)
    assert result.printed == capsys.readouterr().out
    assert result.values is not None
    assert result.values["total"] == names["total"]
    assert torch.nn.Module.eval.__qualname__ == "Module.eval"
