"""Reported confusions end as observed, and the line to blame is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.experiments.tensor_anatomy import explain
from tests.lab.experiments.tensor_anatomy.programs_watched import lines_named, told, watched

CASES = Path(__file__).resolve().parents[3] / "cases"
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, (CASES / "tensor_cases.jsonl").read_text(encoding="utf-8").splitlines())
}
FRESH = {
    "loss by hand": ("w = torch.randn(3, 1)\nx = torch.randn(8, 3)\ny = torch.randn(8)\ndef loss(p, t):\n    return ((p - t) ** 2).mean()\nout = x @ w\nl = loss(out, y)\n", 5, "both expanded"),
    "kl_div": ("a = torch.randn(4, 1).log_softmax(0)\nb = torch.rand(4)\nl = F.kl_div(a, b)\n", 3, "both expanded"),
    "dropped": ("x = torch.ones(2)\nx.to(torch.float64)\ny = x + 1\n", 2, "result dropped"),
    "overflow": ("x = torch.full((3,), 300.0).half()\ny = x * x\nz = y.sum()\n", 2, "overflow"),
    "uint8": ("a = torch.tensor([200, 10], dtype=torch.uint8)\nb = torch.tensor([100, 20], dtype=torch.uint8)\nc = a + b\nd = b - a\n", 3, "integer wrapped"),
    "cast": ("x = torch.tensor([-1.0, 300.0])\ny = x.to(torch.uint8)\n", 2, "cast out of range"),
    "fraction": ("m = torch.zeros(3, dtype=torch.long)\nm[1] = 0.75\n", 2, "fraction cut"),
    "squeeze": ("x = torch.randn(1, 5, 1)\ny = x.squeeze()\n", 2, "batch squeezed"),
    "own list": ("w = torch.zeros(2)\nkept = []\nfor i in range(3):\n    w += 1\n    kept.append(w.detach())\n", 5, "one memory"),
    "rebound": ("import numpy as np\na = np.zeros(2)\nt = torch.from_numpy(a)\na = a + 1\n", 4, "array rebound"),
    "outside": ("import numpy as np\na = np.zeros(2)\nt = torch.from_numpy(a)\nu = t + 1\na += 5\nv = t * 2\n", 5, "outside write"),
    "held": ("big = torch.zeros(1_000_000)\nsmall = big[:10]\ndel big\n", 2, "large memory held"),
    "rows by columns": ("x = torch.rand(4, 4)\np = x / x.sum(1)\n", 2, "misaligned"),
    "best weights": ("net = nn.Linear(2, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nbest = net.state_dict()\nnet(torch.ones(4, 2)).sum().backward()\nopt.step()\n", 3, "no snapshot"),
    "id as float": ("ids = torch.tensor([16_777_217])\nx = ids.float()\n", 2, "integer rounded"),
    "mask of integers": ("x = torch.arange(5.0)\nm = torch.tensor([1, 0, 1, 0, 1])\ny = x[m]\n", 3, "integer mask"),
    "caught shapes": ("a = torch.ones(4, 3)\nb = torch.ones(4)\ntry:\n    c = a + b\nexcept RuntimeError as error:\n    print('went on', error)\n", 4, "refused and caught"),
    "two devices": ("a = torch.ones(2, 2)\nb = torch.ones(2, 2, device='meta')\nc = a @ b\n", 3, "mixed devices"),
    "fp16 counter": ("c = torch.zeros((), dtype=torch.float16)\nfor _ in range(2100):\n    c = c + 1\n", 3, "lost addition"),
}  # fmt: skip
FAULTS = {
    "view": ("x = torch.randn(4, 3)\ny = x.permute(1, 0)\nz = (y * 2).relu()\nw = z.view(-1)\n", 2),
    "narrow": ("x = torch.randn(4, 6)\ny = x[:, :3]\nz = y.view(12)\n", 2),
    "dtype": ("import numpy as np\na = np.ones((2, 3))\nx = torch.as_tensor(a)\nx = x * 2\nnn.Linear(3, 1)(x)\n", 3),
    "expand": ("x = torch.zeros(3)\ny = x.expand(2, 3)\ny += 1\n", 2),
    "inner": ("x = torch.randn(8, 5)\nw = torch.randn(4, 3)\nx @ w\n", 1),
    "axis": ("a = torch.randn(4, 3)\nb = torch.randn(4)\nc = a + b\n", 2),
    "numel": ("x = torch.randn(5, 4)\ny = x.view(3, -1)\n", 1),
    "channels": ("x = torch.randn(2, 8, 8, 3)\nconv = nn.Conv2d(3, 4, 3)\nconv(x)\n", 1),
    "cat": ("a = torch.zeros(2, 3)\nb = torch.zeros(2, 4)\ntorch.cat([a, b])\n", 2),
    "index": ("e = nn.Embedding(10, 4)\ni = torch.tensor([3, 10])\ne(i)\n", 2),
    "flip": ("import numpy as np\nimg = np.zeros((2, 3))\nleft = np.fliplr(img)\nt = torch.from_numpy(left)\n", 3),
    "device": ("net = nn.Linear(2, 2, device='meta')\nx = torch.ones(1, 2)\ny = net(x)\n", 1),
}  # fmt: skip


@pytest.mark.parametrize("at", ROWS)
def test_reported_confusions(at: str):
    row = ROWS[at]
    result = watched(row["snippet"])
    assert (result.fault.type if result.fault else None) == row["error"]
    assert row["culprit_line"] in lines_named(result), [(f.title, f.sites) for f in explain(result)]


@pytest.mark.parametrize("name", FRESH)
def test_a_silent_fault_is_told_with_its_line(name: str):
    code, line, kind = FRESH[name]
    result = watched(code)
    assert kind in {note.kind for note in result.notes}
    assert line in {finding.line for finding in told(code)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_names_where_it_began(name: str):
    code, line = FAULTS[name]
    fault = watched(code).fault
    assert fault is not None
    assert fault.explanation
    assert line in {site.line for site in fault.sites}


def test_why_view_refused():
    (refusal,) = watched(ROWS["ta-04"]["snippet"]).refusals
    assert (refusal.apart, refusal.cause_line, refusal.cause_op, refusal.copy_bytes) == ((2, 3), 4, "transpose", 768)
    assert refusal.asked_shape == (2, 3, 32)


def test_ordinary_programs_draw_no_warning():
    rows = map(json.loads, (CASES / "programs.jsonl").read_text(encoding="utf-8").splitlines())
    warned = {row["id"]: [f.title for f in told(row["code"]) if f.level == "warning"] for row in rows}
    assert not any(warned.values()), {at: titles for at, titles in warned.items() if titles}
