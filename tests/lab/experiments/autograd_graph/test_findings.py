"""What to notice: each finding appears for its case, not for a healthy program, and its numbers are the result's."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from lab.contract import Finding, silent
from lab.experiments.autograd_graph import Params, Result, explain, run
from lab.experiments.autograd_graph.findings import MOST

X = "x = torch.tensor([1.0, 2.0], requires_grad=True)\n"
HEALTHY = {
    "a net": (
        "net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for _ in range(3):\n    opt.zero_grad()\n    loss = net(torch.ones(4, 2)).square().mean()\n    loss.backward()\n    opt.step()\n"
    ),
    "cleared at the end": (
        "net = nn.Linear(2, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.01)\nfor _ in range(3):\n"
        "    loss = (net(torch.ones(4, 2)) - 3).square().mean()\n    loss.backward()\n    opt.step()\n    opt.zero_grad()\n"
    ),
    "one product": X + "w = torch.tensor([3.0, 4.0], requires_grad=True)\nloss = (x * w).sum()\nloss.backward()\n",
}
QUIET = (
    "No graph", "non-finite", "hands on zero", ".grad is None", "is a sum over backward passes", "would fail", "cuts the graph",
    "keeps the memory", "by hand", "Recomputed", "Frozen", "was run for you", "on line",
)  # fmt: skip

# words in the title -> (program, level, line, evidence that must be there)
CASES: dict[str, tuple[str, str, int | None, dict[str, Any]]] = {
    "ZeroDivisionError on line 2": (X + "1 / 0\n", "fault", 2, {"message": "division by zero"}),
    "backward from loss would fail": (
        X + "y = x.exp()\ny.add_(1)\nloss = y.sum()\n", "fault", 3, {"version when saved": 0, "version at backward": 1, "node": "ExpBackward0"},
    ),
    "RuntimeError on line 5": (
        X + "y = x.exp()\ny.add_(1)\nloss = y.sum()\nloss.backward()\n", "fault", 5, {"version when saved": 0, "version at backward": 1},
    ),
    "No graph": (X + "loss = (x * 2).detach().sum()\n", "warning", 2, {}),
    "first non-finite gradient comes from sqrt": (
        "x = torch.tensor(0.0, requires_grad=True)\nloss = x.sqrt()\nloss.backward()\n", "warning", 2, {"incoming": "1", "handed on": "∞"},
    ),
    "round hands on zero": ("x = torch.tensor(0.7, requires_grad=True)\nloss = x.round()\nloss.backward()\n", "surprise", 2, {"incoming": "1", "handed on": 0.0}),
    "u: .grad is None": (X + "u = torch.ones(1, requires_grad=True)\nloss = x.sum()\nloss.backward()\n", "warning", 2, {"leaves without a gradient": 1}),
    ".grad of a result is None": (X + "y = x * 2\ny.sum().backward()\nprint(y.grad)\n", "surprise", 4, {}),
    "x.grad is a sum over backward passes": (
        X + "for _ in range(2):\n    (x * 5).sum().backward()\n", "surprise", None, {"before": "(5, 5)", "added": "(5, 5)", "after": "(10, 10)"},
    ),
    "x is used 2 times": (X + "loss = (x * 3 + x).sum()\nloss.backward()\n", "fact", 1, {"through mul, path 2": "(3, 3)", "sum": "(4, 4)"}),
    "b was broadcast": (
        "x = torch.ones(3, 2)\nb = torch.zeros(2, requires_grad=True)\nloss = (x + b).sum()\nloss.backward()\n", "surprise", 3,
        {"shape": [2], "repeated to": [3, 2], "uses of each entry": 3},
    ),
    "detach cuts the graph": (X + "y = x.detach() * x\nloss = y.sum()\nloss.backward()\n", "fact", 2, {"operation": "detach", "from": "x"}),
    "data cuts the graph": (X + "y = x.data * x\nloss = y.sum()\nloss.backward()\n", "fact", 2, {"operation": "data", "from": "x"}),
    "retain_graph keeps the memory": (
        X + "loss = x.exp().sum()\nloss.backward(retain_graph=True)\n", "surprise", None, {"bytes before backward": 8, "bytes at the end": 8},
    ),
    "create_graph keeps the memory": (
        X + "loss = x.exp().sum()\ntorch.autograd.grad(loss, x, create_graph=True)\n", "surprise", None, {"bytes before backward": 8, "bytes at the end": 8},
    ),
    "backward freed what the graph kept": (X + "loss = x.exp().sum()\nloss.backward()\n", "fact", None, {"bytes before backward": 8, "bytes at the end": 0}),
    "backward freed a part": (
        X + "a = x + 0\nb, c = a.exp().sum(), a.sigmoid().sum()\nloss = b + c\nb.backward()\n", "fact", None, {"bytes before backward": 16, "bytes at the end": 8},
    ),
    "What the graph keeps alive": (X + "loss = x.exp().sum()\n", "fact", None, {"bytes before backward": 8, "bytes at the end": 8}),
    "backward was run for you": (X + "loss = x.exp().sum()\n", "fact", None, {"steps": 3}),
    "order in which the engine ran": (X + "loss = x.exp().sum()\nloss.backward()\n", "fact", None, {"nodes run": 3}),
    "Frozen parameters": (
        "net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))\nnet[0].requires_grad_(False)\nloss = net(torch.ones(1, 2)).sum()\nloss.backward()\n", "fact", None, {"frozen": 2},
    ),
    "A derivative written by hand": (
        "class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, t):\n        return t * 2\n    @staticmethod\n"
        "    def backward(ctx, g):\n        return g * 2\n" + X + "loss = Twice.apply(x).sum()\nloss.backward()\n", "fact", 9, {"TwiceBackward": 1},
    ),
    "Recomputed instead of kept": (
        "from torch.utils.checkpoint import checkpoint\n" + X + "loss = checkpoint(torch.exp, x, use_reentrant=False).sum()\n", "fact", None, {"markers": 1, "kept bytes": 0},
    ),
}  # fmt: skip


def observe(code: str) -> Result:
    return run(Params(code=code), silent)


def found(result: Result, words: str) -> Finding | None:
    return next((finding for finding in explain(result) if words in finding.title), None)


@pytest.mark.parametrize("words", CASES)
def test_a_finding_appears_for_its_case(words: str) -> None:
    code, level, line, evidence = CASES[words]
    finding = found(observe(code), words)
    assert finding is not None, [f.title for f in explain(observe(code))]
    assert (finding.level, finding.line) == (level, line)
    assert {k: finding.evidence.get(k) for k in evidence} == evidence


@pytest.mark.parametrize("title", HEALTHY)
def test_a_healthy_program_has_facts_only(title: str) -> None:
    findings = explain(observe(HEALTHY[title]))
    assert findings
    alarming = [f.title for f in findings for words in QUIET if words in f.title]
    assert alarming == []
    assert all(f.level == "fact" for f in findings), findings


@pytest.mark.parametrize("words", CASES)
def test_texts_are_plain_and_whole(words: str) -> None:
    for finding in explain(observe(CASES[words][0])):
        for text in (finding.title, finding.text):
            assert text
            assert not re.search(r"<[A-Za-z]|\{\}|\bnan\b|  ", text)
        assert finding.level == "fault" or finding.text[-1] in ".…)"
        assert len(finding.text) < 700


def test_the_most_important_come_first_and_few() -> None:
    code = X + "y = x.exp()\ny.add_(1)\nd = x.detach()\nloss = (y + x + x).sum()\nloss.backward()\n"
    levels = [f.level for f in explain(observe(code))]
    assert len(levels) <= MOST
    assert levels == sorted(levels, key=["fault", "warning", "surprise", "fact"].index)
    assert levels[0] == "fault"


def test_evidence_follows_the_result() -> None:
    """A changed result changes the finding: nothing is canned."""
    result = observe(CASES["x.grad is a sum over backward passes"][0])
    last = result.backward[1]
    changed = replace(last[-1], before=[7.0, 7.0], after=[12.0, 12.0])
    finding = found(replace(result, backward=(result.backward[0], (*last[:-1], changed))), "sum over backward passes")
    assert finding
    assert finding.evidence["before"] == "(7, 7)"
    kept = found(replace(observe(X + "loss = x.exp().sum()\nloss.backward()\n"), kept_bytes=80), "backward freed")
    assert kept
    assert kept.evidence["bytes before backward"] == 80
    assert "80 B" in kept.text


def test_a_program_text_stays_text() -> None:
    result = observe("raise ValueError('<script>alert(1)</script> **bold** $x$')\n")
    (finding,) = (f for f in explain(result) if f.level == "fault")
    assert "<script>alert(1)</script>" in finding.text + str(finding.evidence)


@pytest.mark.parametrize(
    ("code", "explained", "repair"),
    [
        (X + "x += 1\n", "leaf that requires gradients has no history", "no_grad"),
        (X + "x[0] = 1\n", "view of a leaf", "no_grad"),
        (X + "y = x * 2\ny.backward()\n", "one real number", "sum"),
        (X + "x.numpy()\n", "NumPy would share", "detach"),
        ("torch.tensor([1], requires_grad=True)\n", "continuous", "floating"),
        ("x = torch.ones(2)\nx.sum().backward()\n", "no graph", "requires_grad"),
        (X + "torch.autograd.grad(x.sum(), torch.ones(1, requires_grad=True))\n", "no path", "allow_unused"),
        ("torch.ones(2) @ torch.ones(3)\n", "shapes do not fit", "Print the shapes"),
        ("torch.ones(2, 3) + torch.ones(2, 2)\n", "shapes do not fit", "Print the shapes"),
        ("torch.ones(2, 2) @ torch.ones(2, 2).double()\n", "different dtypes", "Convert"),
        ("while True: pass\n", "did not come to an end", "loop"),
        ("torch.empty(10**15)\n", "more memory", "smaller"),
        ("x = (\n", "cannot read", "mark"),
        ("undefined\n", "not defined", "torch, nn, F and math"),
        ("exit()\n", "ended itself", "last line"),
        (X + "e = x.sum().expand(3)\ne.add_(1)\n", "repeats memory", "clone"),
        ("def f(): f()\nf()\n", "too deeply", "loop"),
    ],
)
def test_faults_are_explained(code: str, explained: str, repair: str) -> None:
    fault = observe(code).fault
    assert fault
    assert explained in fault.explanation
    assert repair in fault.repair
