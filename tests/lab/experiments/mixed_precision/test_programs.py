"""Programs that lose something to few bits, each with a healthy twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.contract import Finding, silent
from lab.experiments.mixed_precision import Params, Result, explain, run

CASES = Path(__file__).resolve().parents[3] / "cases/mixed_precision_cases.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
}


def seen(code: str) -> Result:
    return run(Params(view="ops", code=code), silent)


def told(code: str) -> list[Finding]:
    return [finding for finding in explain(seen(code)) if finding.level != "fact"]


@pytest.mark.parametrize("name", ROWS)
def test_a_reported_confusion(name: str):
    row = ROWS[name]
    result = seen(row["snippet"])
    assert (result.fault.type if result.fault else None) == row["error"]
    first = explain(result)[0]
    assert first.line == row["culprit_line"]
    if row["error"]:
        assert result.fault is not None
        assert row["observed"]["message"][:60] in result.fault.message
        assert result.fault.explanation


HEAD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 128), nn.LayerNorm(128), nn.GELU())
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        return self.head(self.body(x))

def batch():
    return torch.randn(32, 16), torch.randint(0, 5, (32,))

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
"""
LOSING = {
    "clipped while scaled": """scaler = torch.amp.GradScaler("cpu")
for step in range(3):
    x, y = batch()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    print("loss", loss.item())
    scaler.step(optimizer)
    scaler.update()
""",
    "stepped past the scaler": """scaler = torch.amp.GradScaler("cpu")
x, y = batch()
with torch.autocast("cpu", dtype=torch.float16):
    loss = F.cross_entropy(net(x), y)
scaler.scale(loss).backward()
optimizer.step()
""",
    "overflow": "def norm(t):\n    return (t * t).sum()\n\nbig = torch.full((100, 100), 20.0).half()\nprint(norm(big))\n",
    "nan": "scores = torch.zeros(2, 4)\nmask = torch.full((2, 4), float('-inf'))\nshare = (scores + mask).softmax(-1)\n",
    "lost update": """small = nn.Linear(8, 8).bfloat16()
inner = torch.optim.SGD(small.parameters(), lr=1e-6)
for step in range(5):
    inner.zero_grad()
    small(torch.ones(4, 8).bfloat16()).float().pow(2).mean().backward()
    inner.step()
""",
    "eps is zero": """w = nn.Parameter(torch.ones(4).half())
inner = torch.optim.Adam([w], lr=1e-3)
w.grad = torch.full((4,), 1e-5).half()
inner.step()
""",
    "stale cast": """x, y = batch()
with torch.autocast("cpu", dtype=torch.bfloat16):
    first = net(x)
    with torch.no_grad():
        net.head.weight.mul_(2.0)
    second = net(x)
""",
    "skips for ever": """scaler = torch.amp.GradScaler("cpu")
for step in range(8):
    optimizer.zero_grad()
    loss = net(torch.randn(4, 16)).sum() * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
}
HEALTHY = {
    "unscaled, then clipped": LOSING["clipped while scaled"].replace("    torch.nn.utils.clip", "    scaler.unscale_(optimizer)\n    torch.nn.utils.clip"),
    "bf16 without a scaler": """for step in range(3):
    x, y = batch()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
""",
    "a disabled scaler": """scaler = torch.amp.GradScaler("cpu", enabled=False)
x, y = batch()
loss = F.cross_entropy(net(x), y)
scaler.scale(loss).backward()
torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
""",
    "float32 all through": "for step in range(3):\n    x, y = batch()\n    optimizer.zero_grad()\n    F.cross_entropy(net(x), y).backward()\n    optimizer.step()\n",
    "mean instead of sum": "big = torch.full((100, 100), 20.0).half()\nprint((big * big).mean())\n",
    "masked with where": "scores = torch.zeros(2, 4)\nkeep = torch.tensor([True, False, True, False])\nshare = torch.where(keep, scores, float('-inf')).softmax(-1)\n",
    "cast by hand, changed, used": "w = nn.Linear(4, 4)\nlow = w.weight.detach().to(torch.bfloat16)\nwith torch.no_grad():\n    w.weight.mul_(2)\ny = torch.ones(1, 4).bfloat16() @ low\n",
    "uninitialised memory": "buffer = torch.empty(1000)\nbuffer.zero_()\nprint(buffer.sum())\n",
    "changed between regions": """x, y = batch()
for step in range(2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
}  # fmt: skip


@pytest.mark.parametrize("cause", LOSING)
def test_what_is_lost_is_told_with_its_line(cause: str):
    code = HEAD + LOSING[cause]
    result = seen(code)
    assert result.fault is None
    assert cause in [one.cause for one in result.troubles]
    line = next(one.line for one in result.troubles if one.cause == cause)
    assert code.split("\n")[line - 1].strip()
    assert any(finding.line == line for finding in explain(result))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_draws_no_word(name: str):
    code = HEAD + HEALTHY[name]
    assert seen(code).fault is None
    assert not told(code)


def test_operations_have_the_dtypes_that_python_sees():
    code = """lin = nn.Linear(8, 8)
x = torch.randn(4, 8)
with torch.autocast("cpu", dtype=torch.bfloat16):
    a = lin(x)
    b = a.float() + 1
    c = lin(x)
"""
    result = seen(code)
    by = {(op.line, op.op): op for op in result.ops}
    assert by[4, "addmm"].output == "bfloat16"
    assert by[5, "add"].output == "float32"
    casts = sum(op.count for op in result.ops if op.cast and op.output == "bfloat16")
    assert casts == 4  # the weight, the bias and the input, then the input again: two weights are kept for the region


def test_the_watch_changes_nothing(capsys: pytest.CaptureFixture[str]):
    code = HEAD + HEALTHY["unscaled, then clipped"] + "total = sum(p.sum().item() for p in net.parameters())\n"
    result = seen(code)
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(code, names)
    assert result.printed == capsys.readouterr().out
    assert result.values is not None
    assert result.values["total"] == names["total"]
    assert torch.amp.GradScaler.step.__qualname__ == "GradScaler.step"
