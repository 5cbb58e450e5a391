"""The right cause comes first, and the line to blame is among the sites of the first finding or of the fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.contract import Finding, silent
from lab.experiments.autograd_graph import Params, Result, explain, run

CASES = Path(__file__).resolve().parents[3] / "cases"


def rows(name: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in map(json.loads, (CASES / name).read_text(encoding="utf-8").splitlines())}


LABELS, ROWS = rows("labels.jsonl"), rows("cases.jsonl")
ELSEWHERE = (
    *("gm-02", "gm-03", "gm-04", "gm-06", "gm-22", "gm-23", "gm-24", "gm-26", "gm-27", "gm-28"),
    *("gn-15", "gn-23", "gn-24", "gn-25", "tl-03", "mp-02", "mp-09"),
)
"""Rows of other pages whose cause is autograd's."""
BLAMED = {at: row["culprit_line"] for at, row in LABELS.items() if row["page"] == "autograd_graph"}
BLAMED |= {at: (LABELS.get(at) or ROWS[at])["culprit_line"] for at in ELSEWHERE}


def observe(code: str) -> tuple[Result, tuple[Finding, ...]]:
    result = run(Params(code=code), silent)
    return result, explain(result)


def blamed(code: str) -> set[int]:
    """Lines of the sites of the first finding and of the fault."""
    result, findings = observe(code)
    return {s.line for s in (*(findings[0].sites if findings else ()), *(result.fault.sites if result.fault else ()))}


@pytest.mark.parametrize("at", BLAMED)
def test_the_line_to_blame_is_named(at: str) -> None:
    assert BLAMED[at] in blamed(ROWS[at]["snippet"])


@pytest.mark.parametrize("at", rows("programs.jsonl"))
def test_an_ordinary_program_gets_no_warning(at: str) -> None:
    code = rows("programs.jsonl")[at]["code"]
    warned = [f.title for f in observe(code)[1] if f.level in ("warning", "fault")]
    assert warned == (
        ["sqrt made NaN in the forward"] if "sqrt(-1" in code.replace("torch.", "") or at == "B083" else []
    )


# kind -> (program with {pad} where other lines may stand, words of the text, line to blame in the plain program)
KINDS: dict[str, tuple[str, str, str]] = {
    "own output overwritten": ("x = torch.randn(N, requires_grad=True)\ny = torch.sigmoid(x)\ny.mul_(2)  # blame\ny.sum().backward()\n", "kept its own output", "mul_"),
    "input overwritten": ("x = torch.randn(N, requires_grad=True)\nu = x * 1.0\nz = (u ** 2).sum()\nu[0] = 1.0  # blame\nz.backward()\n", "kept u", "slice assignment"),
    "freed": ("x = torch.randn(N, requires_grad=True)\nt = torch.tanh(x)\na = t.sum()\nb = (t * 2).sum()\na.backward()  # blame\nb.backward()\n", "tanh", "used and freed"),
    "no path": ("x = torch.randn(N, requires_grad=True)\ny = x.detach() * 2  # blame\nz = y.sum()\nz.backward()\n", "detach", "has no graph"),
    "an index": ("x = torch.randn(N, requires_grad=True)\ni = x.argmax()  # blame\nz = i.float()\nz.backward()\n", "argmax", "no derivative"),
    "a write into a leaf": ("x = torch.randn(N, requires_grad=True)\nx.add_(1)  # blame\n", "x", "no history"),
    "not a scalar": ("x = torch.randn(N, requires_grad=True)\ny = x * 2\ny.backward()  # blame\n", "shape", "one real number"),
    "expanded memory": ("p = torch.randn(N)\nq = p.expand(3, N)\nq.add_(1)  # blame\n", "strides are (0, 1)", "expand()"),
}  # fmt: skip


def placed(code: str, how: str) -> str:
    """The program inside a function, with logging lines, with large tensors, or with its error caught."""
    size = "10_000" if how == "large" else "3"
    code = code.replace("N", size)
    lines = code.splitlines()
    if how == "logging":
        lines = [part for line in lines for part in (line, "print('step')")]
    if how == "in a function":
        lines = ["def main():", *("    " + line for line in lines), "main()"]
    if how == "in a module":
        lines = ["class Net(nn.Module):", "    def forward(self):", *("        " + line for line in lines), "Net()()"]
    if how == "caught":
        lines = ["try:", *("    " + line for line in lines), "except RuntimeError as error:", "    print(error)"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("how", ["plain", "logging", "in a function", "in a module", "large", "caught"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cause_is_found_wherever_it_stands(kind: str, how: str) -> None:
    code, *said = KINDS[kind]
    program = placed(code, how)
    (line,) = (n for n, text in enumerate(program.splitlines(), 1) if "# blame" in text)
    result, findings = observe(program)
    assert line in {s.line for s in findings[0].sites}, findings[0]
    assert all(words in findings[0].text for words in said), findings[0].text
    assert (result.fault is None) == (how == "caught")
    if result.fault:
        assert (result.fault.explanation, result.fault.sites) == (findings[0].text, findings[0].sites)


PROGRAMS = {
    row["title"]: row for row in map(json.loads, (CASES / "causes.jsonl").read_text(encoding="utf-8").splitlines())
}


@pytest.mark.parametrize("title", PROGRAMS)
def test_the_cause_of_a_program(title: str) -> None:
    """``blame`` is the line to blame, null for a program that must stay silent."""
    row = PROGRAMS[title]
    _, findings = observe(row["code"])
    if row["blame"] is None:
        assert [f.title for f in findings if f.level in ("warning", "fault")] == []
        return
    assert row["blame"] in {s.line for s in findings[0].sites}, findings[0]
    assert all(words in findings[0].title + findings[0].text for words in row["words"]), findings[0].text


NEAR_MISSES = {
    "written after backward": "x = torch.ones(3, requires_grad=True)\ny = torch.sigmoid(x)\nloss = y.sum()\nloss.backward()\nwith torch.no_grad():\n    x.add_(1)\n",
    "a product keeps the constant only": "x = torch.ones(3, requires_grad=True)\ny = x * 2\ny += 1\nloss = y.sum()\nloss.backward()\n",
    "a copy is written": "x = torch.ones(3, requires_grad=True)\ny = torch.sigmoid(x).clone()\ny[0] = 0.0\nloss = y.sum()\nloss.backward()\n",
    "a graph for each pass": "x = torch.ones(3, requires_grad=True)\nfor _ in range(2):\n    loss = torch.tanh(x).sum()\n    loss.backward()\n    x.grad = None\n",
    "state detached": "cell = nn.RNNCell(2, 3)\nh = torch.zeros(1, 3)\nfor _ in range(2):\n    h = cell(torch.ones(1, 2), h.detach())\n    h.sum().backward()\n    cell.zero_grad()\n",
    "evaluation without gradients": "net = nn.Linear(2, 1)\nwith torch.no_grad():\n    loss = net(torch.ones(4, 2)).mean()\nprint(loss.item())\n",
    "no gradients at all": "a = torch.arange(6.0).reshape(2, 3)\nprint(a.argmax(), a.detach().numpy(), a @ a.T)\n",
    "a mask of infinity": "s = torch.randn(2, 3, requires_grad=True)\nm = torch.tensor([[0.0, float('-inf'), 0.0], [0.0, 0.0, float('-inf')]])\nloss = (s + m).softmax(-1)[:, 0].sum()\nloss.backward()\n",
    "log of a positive number": "v = torch.tensor([4.0], requires_grad=True)\nloss = v.log().sum()\nloss.backward()\n",
    "losses of one shape": "p = torch.ones(3, 1, requires_grad=True)\nloss = F.mse_loss(p, torch.zeros(3, 1))\nloss.backward()\n",
    "a bias that is broadcast": "net = nn.Linear(2, 3)\nloss = (net(torch.ones(4, 2)) - torch.zeros(4, 3)).square().mean()\nloss.backward()\n",
    "clip before step": "net = nn.Linear(2, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor _ in range(2):\n    opt.zero_grad()\n    net(torch.ones(4, 2)).mean().backward()\n    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n    opt.step()\n",
    "momentum through .data": "net = nn.Linear(2, 1)\nfor _ in range(2):\n    net.zero_grad()\n    loss = net(torch.ones(4, 2)).mean()\n    loss.backward()\n    for p in net.parameters():\n        p.data.add_(p.grad, alpha=-0.1)\n",
    "batch norm": "net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))\nloss = net(torch.randn(6, 3)).pow(2).mean()\nloss.backward()\n",
    "a right custom function": "class Square(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x * x\n    @staticmethod\n    def backward(ctx, g):\n        (x,) = ctx.saved_tensors\n        return 2 * x * g\nx = torch.tensor(3.0, requires_grad=True)\ng, = torch.autograd.grad(Square.apply(x), x, create_graph=True)\ng.backward()\n",
}  # fmt: skip


@pytest.mark.parametrize("title", NEAR_MISSES)
def test_a_near_miss_stays_silent(title: str) -> None:
    loud = [(f.level, f.title) for f in observe(NEAR_MISSES[title])[1] if f.level in ("warning", "fault")]
    assert loud == []


@pytest.mark.parametrize("title", ["no gradients at all", "batch norm"])
def test_no_sentence_about_what_is_not_there(title: str) -> None:
    said = " ".join(f.title + f.text + f.repair for f in observe(NEAR_MISSES[title])[1])
    assert not any(words in said for words in ("requires_grad=True", "Frozen", "cuts the graph", "added: nothing"))
