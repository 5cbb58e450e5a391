"""Programs that lose state, each with a twin that keeps it and must draw no warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.contract import Finding, silent
from lab.experiments.checkpoint_resume import Params, Result, explain, run

CASES = Path(__file__).resolve().parents[3] / "cases/checkpoint_resume_cases.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
}
CAUSES = {
    "sl-03": "nothing loaded", "sl-06": "optimizer fresh", "sl-07": "lr reset", "ds-14": "nothing loaded", "ck-01": "view saved",
    "ck-02": "optimizer fresh", "cr-02": "scaler fresh", "cr-04": "permutation drawn again", "cr-09": "scheduler fresh",
    "cr-11": "groups kept", "cr-12": "nothing loaded", "cr-14": "lr replaced", "cr-15": "another order",
}  # fmt: skip


def seen(code: str) -> Result:
    return run(Params(view="program", code=code), silent)


def told(code: str) -> list[Finding]:
    return [finding for finding in explain(seen(code)) if finding.level != "fact"]


@pytest.mark.parametrize("name", ROWS)
def test_a_reported_confusion(name: str):
    row = ROWS[name]
    result = seen(row["snippet"])
    assert (result.fault.type if result.fault else None) == row["error"]
    if row["error"]:
        assert result.fault is not None
        assert result.fault.explanation
        assert "\x1b" not in result.fault.message
        assert row.get("culprit_line") in (None, result.fault.line)
    elif name in CAUSES:
        assert result.losses[0].cause == CAUSES[name]
        sites = {loss.line for loss in result.losses} | {loss.other_line for loss in result.losses}
        assert name in ("sl-07", "cr-09") or row.get("culprit_line") in (None, *sites)
        first = explain(result)[0]
        assert first.line == result.losses[0].line
    else:
        assert not told(row["snippet"])


TRAIN = """
def train(model, optimizer, steps, schedule=None):
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        print("step", step)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64))
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.body(x))

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
train(model, optimizer, 5, schedule)
import io
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, file)
file.seek(0)
saved = torch.load(file)
again = Net()
"""
LOSING = {
    "optimizer fresh": """again.load_state_dict(saved["model"])
second = torch.optim.AdamW(again.parameters(), lr=1e-2)
train(again, second, 2)
""",
    "nothing loaded": """answer = again.load_state_dict({"net." + k: v for k, v in saved["model"].items()}, strict=False)
""",
    "partly loaded": """again.load_state_dict({k: v for k, v in saved["model"].items() if "head" not in k}, strict=False)
""",
    "scheduler fresh": """again.load_state_dict(saved["model"])
second = torch.optim.AdamW(again.parameters(), lr=1e-2)
second_schedule = torch.optim.lr_scheduler.StepLR(second, 2)
second.load_state_dict(saved["optimizer"])
train(again, second, 3, second_schedule)
""",
    "lr reset": """again.load_state_dict(saved["model"])
second = torch.optim.AdamW(again.parameters(), lr=1e-2)
second.load_state_dict(saved["optimizer"])
second_schedule = torch.optim.lr_scheduler.LambdaLR(second, lambda tick: 0.5)
""",
    "another order": """again.load_state_dict(saved["model"])
second = torch.optim.AdamW(reversed(list(again.parameters())), lr=1e-2)
second.load_state_dict(saved["optimizer"])
""",
    "on meta": """with torch.device("meta"):
    empty = Net()
empty.load_state_dict(saved["model"])
""",
    "view saved": """torch.save({"first": torch.zeros(100, 1000)[:2]}, "rows.pt")
""",
    "lr replaced": """second = torch.optim.AdamW(again.parameters(), lr=3e-5)
second.load_state_dict(saved["optimizer"])
""",
}
KEEPING = {
    "everything loaded": """again.load_state_dict(saved["model"])
second = torch.optim.AdamW(again.parameters(), lr=1e-2)
second_schedule = torch.optim.lr_scheduler.StepLR(second, 2)
second.load_state_dict(saved["optimizer"])
second_schedule.load_state_dict(saved["schedule"])
train(again, second, 3, second_schedule)
""",
    "another training with its own optimizer": """second = torch.optim.AdamW(again.parameters(), lr=1e-2)
train(again, second, 3)
torch.save(second.state_dict(), "second.pt")
""",
    "fine-tuning at another rate": """again.load_state_dict(saved["model"])
second = torch.optim.AdamW(again.parameters(), lr=1e-4)
train(again, second, 2)
""",
    "fine-tuning with another optimizer": """again.load_state_dict(saved["model"])
second = torch.optim.SGD(again.parameters(), lr=1e-2)
train(again, second, 2)
""",
    "a prefix taken off": """wrapped = {"module." + k: v for k, v in saved["model"].items()}
again.load_state_dict({k.removeprefix("module."): v for k, v in wrapped.items()})
""",
    "a clone of a view": """torch.save(torch.zeros(100, 1000)[:2].clone(), "rows.pt")
torch.save(torch.zeros(8, 8).t(), "turned.pt")
""",
    "an average of the weights": """average = torch.optim.swa_utils.AveragedModel(again)
average.update_parameters(again)
average.load_state_dict(average.state_dict())
""",
    "meta, then assigned": """with torch.device("meta"):
    empty = Net()
empty.load_state_dict(saved["model"], assign=True)
""",
    "generators put back": """state = torch.get_rng_state()
a = torch.randperm(6)
torch.set_rng_state(state)
b = torch.randperm(6)
""",
    "a refusal that is caught": """try:
    again.load_state_dict({"x": torch.ones(1)})
except RuntimeError as error:
    print("refused")
again.load_state_dict(saved["model"])
""",
}


@pytest.mark.parametrize("cause", LOSING)
def test_lost_state_is_told_with_its_line(cause: str):
    result = seen(TRAIN + LOSING[cause])
    assert result.fault is None
    assert [loss.cause for loss in result.losses][:1] == [cause]
    after = TRAIN.count("\n")
    assert (explain(result)[0].line or 0) > after


@pytest.mark.parametrize("name", KEEPING)
def test_state_that_is_kept_draws_no_word(name: str):
    code = TRAIN + KEEPING[name]
    assert seen(code).fault is None
    assert not told(code)


def test_a_program_prints_and_binds_the_same_with_and_without_the_watch(capsys: pytest.CaptureFixture[str]):
    code = TRAIN + KEEPING["everything loaded"] + "weights = sum(p.sum().item() for p in again.parameters())\n"
    result = seen(code)
    import torch

    names: dict[str, Any] = {"torch": torch, "nn": torch.nn}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(code, names)
    assert result.printed == capsys.readouterr().out
    assert result.values is not None
    assert result.values["weights"] == names["weights"]
    assert torch.save.__module__ == "torch.serialization"
    assert torch.nn.Module.load_state_dict.__qualname__ == "Module.load_state_dict"


PAIR = """def save(run):
    return {{"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "scheduler": run.scheduler.state_dict(),
            "scaler": run.scaler.state_dict(), "ema": run.ema.state_dict(), "rng": torch.get_rng_state(),
            "python": random.getstate(), "sampler": (run.sampler_rng.get_state(), run.order, run.position), "micro": run.micro,
            "grads": [p.grad for p in run.model.parameters()]}}

def load(run, file):
    saved = torch.load(file)
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.scheduler.load_state_dict(saved["scheduler"])
    run.scaler.load_state_dict(saved["scaler"])
    {ema}
    run.sampler_rng.set_state(saved["sampler"][0])
    run.order, run.position = saved["sampler"][1:]
    run.micro = saved["micro"]
    for p, grad in zip(run.model.parameters(), saved["grads"]):
        p.grad = grad
    random.setstate(saved["python"])
    torch.set_rng_state(saved["rng"])

import random
"""


def test_a_pair_of_functions_is_driven():
    whole = seen(PAIR.format(ema='run.ema.load_state_dict(saved["ema"])'))
    assert whole.fault is None
    assert whole.first_different is None
    assert all(part.restored for part in whole.parts)
    lost = seen(PAIR.format(ema="pass"))
    assert [part.name for part in lost.parts if not part.restored] == ["ema"]
    assert lost.first_different is None
    assert lost.eval_gap_average > 0.5
    assert explain(lost)[0].title == "1 of 10 parts did not come back: the average of the weights"


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        ("def save(run):\n    pass\n\ndef load(run, file):\n    pass\n", "PairError", 1),
        ("def save(run):\n    return {}\n\ndef load(run, file):\n    run.model.load_state_dict(torch.load(file)['model'])\n", "KeyError", 5),
        ("torch.load('nowhere.pt')\n", "FileNotFoundError", 1),
        ("w = [nn.Parameter(torch.ones(1))]\no = torch.optim.SGD(w, lr=0.1)\ntorch.optim.lr_scheduler.StepLR(o, 1, last_epoch=3)\n", "KeyError", 3),
    ],
)  # fmt: skip
def test_faults_are_data_with_their_line(code: str, kind: str, line: int):
    fault = seen(code).fault
    assert fault is not None
    assert (fault.type, fault.line) == (kind, line)
