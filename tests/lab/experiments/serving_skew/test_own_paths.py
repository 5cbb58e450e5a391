"""A visitor's two paths or models: the stage that parts, what names the cause, and healthy twins that agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.contract import silent
from lab.experiments.serving_skew import Params, Result, explain, passed, run

CASES = Path(__file__).resolve().parents[3] / "cases/serving_skew_cases.jsonl"
ROWS = {row["id"]: row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())}


def seen(code: str) -> Result:
    return run(Params(view="own", code=code), silent)


@pytest.mark.parametrize("name", ROWS)
def test_a_reported_confusion(name: str):
    row = ROWS[name]
    result = run(Params(view="own", code=row["snippet"]), silent)
    assert result.fault is None
    told = {
        "sk-03": "served lists the names of angles in another order",
        "sk-06": "wrong has 255 times the spread of right",
    }
    if name in told:
        assert explain(result)[0].title == told[name]
        assert explain(result)[0].line == row["culprit_line"]
    else:
        assert not explain(result)


HEAD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 64)
        self.norm = nn.BatchNorm1d(64)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.drop(self.norm(self.stem(x)).relu()))

torch.manual_seed(0)
net = Net()
for _ in range(5):
    net(torch.randn(32, 4))
net.eval()
classes = ["cat", "dog", "owl"]
KEYS = ["age", "income", "clicks", "visits"]

def features(rows, keys=KEYS):
    print("rows", len(rows))
    return torch.tensor([[row[key] / 100 for key in keys] for row in rows])

def train_path(rows):
    x = features(rows)
    y = net(x)
    p = y.softmax(1)
    return {"features": x, "logits": y, "probabilities": p, "label": [classes[i] for i in p.argmax(1)]}
"""
DEPARTING = {
    ("features", "features"): """
def serve_path(rows):
    x = features(rows, sorted(KEYS, reverse=True))
    p = net(x).softmax(1)
    return {"features": x, "logits": net(x), "probabilities": p, "label": [classes[i] for i in p.argmax(1)]}
""",
    ("logits", "stage"): """
import copy
served = copy.deepcopy(net)
served.head.reset_parameters()
def serve_path(rows):
    x = features(rows)
    y = served(x)
    return {"features": x, "logits": y, "probabilities": y.softmax(1), "label": [classes[i] for i in y.argmax(1)]}
""",
    ("probabilities", "postprocessing"): """
def serve_path(rows):
    x = features(rows)
    y = net(x)
    return {"features": x, "logits": y, "probabilities": y.sigmoid()}
""",
    ("label", "labels"): """
def serve_path(rows):
    result = train_path(rows)
    names = sorted(classes, reverse=True)
    return {**result, "label": [names[i] for i in result["probabilities"].argmax(1)]}
""",
}
AGREEING = {
    "the same": "\ndef serve_path(rows):\n    return train_path(rows)\n",
    "more stages": "\ndef serve_path(rows):\n    return {'raw': len(rows), **train_path(rows)}\n",
    "one by one": """
def serve_path(rows):
    parts = [train_path([row]) for row in rows]
    joined = {k: torch.cat([p[k] for p in parts]) for k in ("features", "logits", "probabilities")}
    return {**joined, "label": [p["label"][0] for p in parts]}
""",
}


@pytest.mark.parametrize(("stage", "kind"), DEPARTING)
def test_the_stage_and_the_cause(stage: str, kind: str):
    result = seen(HEAD + DEPARTING[stage, kind])
    assert result.fault is None
    assert result.first == stage
    assert result.cause is not None
    assert result.cause.kind == kind
    assert passed(result) is False


@pytest.mark.parametrize("name", AGREEING)
def test_paths_that_agree(name: str):
    result = seen(HEAD + AGREEING[name])
    assert result.fault is None
    assert not result.first
    assert passed(result) is True
    assert {finding.level for finding in explain(result)} == {"fact"}


def test_randomness_left_on_is_told():
    result = seen(HEAD + "\ndef serve_path(rows):\n    net.drop.train()\n    return train_path(rows)\n")
    assert result.random_from == "logits"
    assert any("Two calls" in finding.title for finding in explain(result))


MODELS = """
import copy
torch.manual_seed(0)
trained = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)).eval()
served = copy.deepcopy(trained)
rows = torch.randn(10, 4)
"""


@pytest.mark.parametrize(
    ("change", "first", "kind"),
    [
        ("", "", None), ("served.train()", "module 1", "mode"), ("served[3].train()", "module 3", "mode"),
        ("served[4].bias.data += 1", "module 4", "weights"), ("served[1].running_mean += 1", "module 1", "buffers"),
    ],
)  # fmt: skip
def test_two_versions_of_a_model(change: str, first: str, kind: str | None):
    result = seen(MODELS + change + "\n")
    assert result.fault is None
    assert result.first == first
    assert (result.cause.kind if result.cause else None) == kind


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def train_path(rows):\n    return {}\n", "no serve_path"),
        ("def train_path(rows):\n    return {'a': 1}\ndef serve_path(rows):\n    return {'b': 1}\n", "no stage in common"),
        ("def train_path(rows):\n    return {'a': 1}\ndef serve_path(rows):\n    return 3\n", "returned int"),
        ("trained, served = nn.Linear(2, 2), nn.Linear(2, 2)\n", "no rows"),
        ("def train_path(rows):\n    return {'a': rows[0]['nothing']}\ndef serve_path(rows):\n    return {}\n", "nothing"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(code: str, words: str):
    fault = seen(code).fault
    assert fault is not None
    assert words in fault.message


@pytest.mark.parametrize(
    ("served", "status"), [("train_path(rows)", 0), ("{**train_path(rows), 'y': torch.zeros(2)}", 4)]
)
def test_the_command_line_exits_with_the_answer(tmp_path: Path, served: str, status: int):
    program = tmp_path / "paths.py"
    program.write_text(
        f"def train_path(rows):\n    return {{'x': len(rows), 'y': torch.ones(2)}}\n\ndef serve_path(rows):\n    return {served}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "lab", "run", "serving_skew", "--code", str(program), "--json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    answer = json.loads(done.stdout)
    assert answer["error"] is None
    assert answer["result"]["first"] == ("y" if status else "")
    assert [stage["name"] for stage in answer["result"]["stages"]] == ["x", "y"]
