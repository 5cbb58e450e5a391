"""Programs run twice: what differs, at which line, which lines draw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.contract import silent
from lab.experiments.reproducibility import Params, Result, explain, lessons, run

CASES = Path(__file__).resolve().parents[3] / "cases/reproducibility_cases.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
}
POINTS = {
    "one thread, then two": ("They part at", "bit for bit"), "one draw more": ("They part at bernoulli",), "another layout of an optimizer": ("runs in the",),
    "checkpointing": ("runs in the second run only",), "how many numbers were asked for": ("the same, bit for bit",), "a loop that only reads": ("Iterating on line",),
    "one ulp in": ("the same, bit for bit",), "adding into the same places": ("distinct of 20 calls", "Other bits", "A row alone"), "which sameness": ("Holds:", "All three"),
}  # fmt: skip


def seen(code: str, change: str = "nothing", repeats: int = 3) -> Result:
    return run(Params(view="program", change=change, code=code, repeats=repeats), silent)


@pytest.mark.parametrize("name", ROWS)
def test_a_reported_confusion(name: str):
    row = ROWS[name]
    result = seen(row["snippet"], repeats=2)
    assert (result.fault.type if result.fault else None) == row["error"]
    if not row["error"]:
        assert (result.distinct, result.repeats) == (1, 2)
        assert result.first is None
    drawn = {draw.line for draw in result.draws if draw.line}
    assert name in ("rp-04", "rp-26", "rp-28") or not row.get("culprit_line") or row["culprit_line"] in drawn


@pytest.mark.parametrize("lesson", lessons, ids=lambda lesson: lesson.title)
def test_the_first_finding_of_a_lesson_is_its_point(lesson):
    title = explain(run(lesson.params, silent))[0].title
    assert any(words in title for words in POINTS[lesson.title])


TRAIN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 128)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(128, 2)

    def forward(self, x):
        return self.head(self.drop(self.body(x).relu()))

def train(net, steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.6f}")

net = Net()
train(net, 4)
"""


def test_a_training_is_the_same_twice_and_its_draws_have_lines():
    result = seen(TRAIN)
    assert result.fault is None
    assert (result.distinct, result.repeats, result.first) == (1, 3, None)
    lines = TRAIN.split("\n")
    assert {lines[draw.line - 1].strip().split("(")[0] for draw in result.draws} == {
        "self.body = nn.Linear", "self.head = nn.Linear", "x = torch.randn", "return self.head",
    }  # fmt: skip
    assert len(result.printed.splitlines()) == 4


@pytest.mark.parametrize(("change", "where"), [("seed", "self.body"), ("extra draw", "self.body")])
def test_another_seed_parts_at_the_first_draw(change: str, where: str):
    result = seen(TRAIN, change)
    assert result.first is not None
    assert result.first.line
    assert where in TRAIN.split("\n")[result.first.line - 1]


def test_time_and_other_generators_are_noticed():
    clock = "import time\nx = torch.ones(3) * (time.perf_counter() % 1.0)\ny = x + 1\n"
    result = seen(clock)
    assert result.first is not None
    assert (result.first.line, result.first.op) == (2, "mul")
    assert result.distinct == result.repeats == 3
    other = seen("import random\nimport numpy as np\na = random.random()\nb = np.random.rand()\n")
    assert {draw.generator for draw in other.draws} == {"Python", "NumPy"}
    assert other.distinct == 1


def test_a_program_that_seeds_itself_is_not_moved_by_a_seed():
    result = seen("torch.manual_seed(5)\nw = torch.randn(4)\n", "seed")
    assert result.first is None


def test_a_loader_with_a_generator_of_its_own_draws_nothing_else():
    code = """data = torch.utils.data.TensorDataset(torch.arange(8.0))
own = torch.Generator().manual_seed(1)
loader = torch.utils.data.DataLoader(data, batch_size=4, generator=own)
for (x,) in loader:
    x.sum()
"""
    assert not [draw for draw in seen(code).draws if draw.line == 4]
    assert not any("Iterating" in finding.title for finding in explain(seen(code)))


def test_a_fault_is_data_with_its_line():
    result = seen("x = torch.rand(2)\ny = x @ torch.ones(3)\n")
    assert result.fault is not None
    assert result.fault.line == 2
    assert [draw.line for draw in result.draws] == [1]


def test_the_program_prints_once_and_computes_the_same(capsys: pytest.CaptureFixture[str]):
    code = TRAIN + "total = sum(p.sum().item() for p in net.parameters())\n"
    result = seen(code)
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(code, names)
    assert result.printed == capsys.readouterr().out
    assert result.values is not None
    assert result.values["total"] == names["total"]
