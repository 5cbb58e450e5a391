"""A repair that only silences an error is not accepted; one that gives the gradients of its own forward is."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch

from lab.contract import Edit, apply_edits
from lab.program.edits import why_never
from lab.program.lines import FILE
from lab.program.repair import Trial
from lab.records.program import Repair

WRITE = "x = torch.tensor([1.0, 2.0], requires_grad=True)\ny = torch.tanh(x)\ny += x\nloss = y.sum()\nloss.backward()\n"
SHARED = (
    "x = torch.tensor([1.0, 2.0], requires_grad=True)\nh = x * x\na = h.sum()\nb = (h * 2).sum()\n"
    "a.backward()\nb.backward()\n"
)
MODULE = (
    "net = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.ReLU(inplace=True), nn.Linear(4, 1))\n"
    "opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)\n"
    "for step in range(3):\n    opt.zero_grad()\n    loss = F.dropout(net(torch.randn(8, 3))).pow(2).mean()\n"
    "    loss.backward()\n    opt.step()\n"
)
CARRIED = (
    "w = torch.tensor(0.5, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)\nh = torch.zeros(3)\n"
    "for t in range(3):\n    h = torch.tanh(w * h + w)\n    loss = h.sum()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"
)
FUNCTION = (
    "class Square(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n"
    "        return x * x\n    @staticmethod\n    def backward(ctx, g):\n        x, = ctx.saved_tensors\n        return g * x, None\n"
    "x = torch.tensor([1.0, 2.0], requires_grad=True)\nloss = Square.apply(x).sum()\nloss.backward()\n"
)
SECOND = (
    "x = torch.randn(10000, requires_grad=True)\ny = F.dropout(torch.sigmoid(x))\ny.mul_(2)\n"
    "g, = torch.autograd.grad(y.sum(), x, create_graph=True)\nloss = (g * g).mean()\nloss.backward()\n"
)
MOVED = (
    "w = torch.tensor([1.0, 2.0], requires_grad=True)\nfor i in range(2):\n    loss = (w * w).sum()\n    loss.backward()\n"
    "    w = w - 0.1 * w.grad\n"
)
KINK = WRITE.replace("1.0", "0.0").replace("tanh", "relu")
EMBEDDED = (
    "emb, rnn, out = nn.Embedding(10, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 1)\n"
    "h, _ = rnn(emb(torch.randint(0, 10, (3, 6))))\ny = torch.sigmoid(out(h))\ny += 1\ny.mean().backward()\n"
)
FLOATS = WRITE.replace("requires_grad=True)", "dtype=torch.float32, requires_grad=True)")


def tried(
    source: str, *changes: tuple[int, str], asked: bool = True, errors: tuple[str, ...] = ("refused",), left: float = 20
) -> Repair:
    lines = source.split("\n")
    edits = tuple(Edit(line, lines[line - 1], new) for line, new in changes)
    trial = Trial(source, seed=0, device="cpu", asked=asked, errors=errors, seconds_left=lambda: left)
    (repair,) = trial.repairs([edits])
    return repair


@pytest.mark.parametrize(
    ("source", "changes", "compared"),
    [
        (WRITE, [(3, "y = y + x")], 1),
        (FLOATS, [(3, "y = y + x")], 1),
        (SHARED, [(5, "pass"), (6, "(a + b).backward()")], 1),
        (SHARED, [(5, "a.backward(retain_graph=True)")], 2),
        (MODULE, [(1, MODULE.split("\n")[0].replace("inplace=True", "inplace=False"))], 2),
        (CARRIED, [(5, "    h = h.detach()\n    h = torch.tanh(w * h + w)")], 2),
        (FUNCTION, [(9, "        return g * x * 2")], 1),
        (SECOND, [(3, "y = y.mul(2)")], 2),
        (MOVED, [(5, "    with torch.no_grad():\n        w -= 0.1 * w.grad")], 2),
        (EMBEDDED, [(4, "y = y + 1")], 1),
    ],
)
def test_a_right_repair_is_accepted(source: str, changes: list[tuple[int, str]], compared: int) -> None:
    repair = tried(source, *changes)
    assert (repair.accepted, repair.why_not, repair.compared) == (True, "", compared)
    assert repair.gradients


@pytest.mark.parametrize(
    ("source", "changes", "why"),
    [
        (WRITE, [(3, "y = y.detach() + x")], "not those of its own forward"),
        (WRITE, [(3, "y = y + x.detach()")], "not those of its own forward"),
        (WRITE, [(3, "with torch.no_grad():\n    z = y + x\ny = y + z")], "not those of its own forward"),
        (WRITE, [(3, "y = y + torch.tensor(x.tolist())")], "not those of its own forward"),
        (WRITE, [(3, "y = y + x.detach().numpy().sum().item()")], "not those of its own forward"),
        (WRITE, [(3, "y.data += x.data")], "not those of its own forward"),
        (WRITE, [(3, "y = y + x\nx.register_hook(lambda g: g * 0)")], "not those of its own forward"),
        (WRITE, [(5, "pass")], "no longer runs backward"),
        (WRITE, [(3, "undefined")], "ended with NameError"),
        (WRITE, [(3, "y = y + x / 0")], "not finite"),
        (WRITE, [(3, "y = (y + x) * (1.0 if bool(x.sum() == 3.0) else 2.0)")], "not those of its own forward"),
        (KINK, [(3, "y = y + 1")], "not those of its own forward"),
        (FUNCTION, [(9, "        return g * x * 3")], "not those of its own forward"),
        (CARRIED, [(5, "    h = h.detach()\n    h = torch.tanh(w.detach() * h + w)")], "not those of its own forward"),
        (SECOND, [(5, "loss = (g.detach() * g).mean()")], "not those of its own forward"),
        (WRITE, [(5, "loss.detach().requires_grad_().backward()")], "requires_grad_"),
        (WRITE, [(4, "loss = torch.tensor(y.sum().item(), requires_grad=True)")], "requires_grad_"),
        (MODULE, [(6, "    loss.backward(retain_graph=True)")], "retain_graph"),
        (SECOND, [(4, "g, = torch.autograd.grad(y.sum(), x, create_graph=True, allow_unused=True)")], "allow_unused"),
    ],
)
def test_an_edit_that_only_silences_is_not(source: str, changes: list[tuple[int, str]], why: str) -> None:
    repair = tried(source, *changes)
    assert not repair.accepted
    assert why in repair.why_not


def test_a_kept_graph_in_a_function_that_is_called_again_is_not_accepted() -> None:
    source = "w = torch.tensor(2.0, requires_grad=True)\nh = torch.tanh(w)\ndef step(k):\n    (h * k).backward()\nstep(1)\nstep(2)\n"
    assert "in a loop" in tried(source, (4, "    (h * k).backward(retain_graph=True)")).why_not


def test_an_error_that_is_still_caught_is_no_repair() -> None:
    source = f"try:\n    {WRITE.rstrip().replace(chr(10), chr(10) + '    ')}\nexcept RuntimeError:\n    pass\n"
    assert "still refuses" in tried(source, (5, "    loss = y.sum() + 0")).why_not
    assert tried(source, (4, "    y = y + x")).accepted


def test_a_program_that_differentiates_nothing_is_compared_on_its_loss() -> None:
    source = WRITE.replace("loss.backward()\n", "")
    assert tried(source, (3, "y = y + x"), asked=False).compared == 1
    assert "own forward" in tried(source, (3, "y = y + x.detach()"), asked=False).why_not
    assert tried("x = torch.ones(2)\ny = x\n", (2, "y = x + 1"), asked=False).compared == 0


def test_leaves_without_a_result_are_nothing_to_compare() -> None:
    source = "w = torch.ones(2, requires_grad=True)\nw -= 1\n"
    assert "no result to compare" in tried(source, (2, "with torch.no_grad():\n    w -= 1"), asked=False).why_not


STATE = "w = torch.tensor(0.5, requires_grad=True)\nh = torch.ones(3)\nfor t in range(3):\n    h = torch.tanh(w * h + w)\n    h.sum().backward()\n"


def test_a_state_that_is_cut_between_steps_is_a_constant_for_the_next() -> None:
    assert tried(STATE, (4, "    h = h.detach()\n    h = torch.tanh(w * h + w)")).compared == 3
    assert "own forward" in tried(STATE, (4, "    h = h.detach()\n    h = torch.tanh(w * h + w.detach())")).why_not


def test_a_repair_of_a_write_changes_no_forward() -> None:
    source = "x = torch.ones(2, requires_grad=True)\ny = torch.exp(x)\nv = y[:1]\nv.add_(1)\nloss = y.sum()\nloss.backward()\n"
    start = 2 * torch.e + 1
    edits = {
        line: (Edit(line, source.split("\n")[line - 1], new),)
        for line, new in ((4, "v = v.add(1)"), (3, "y = y.clone()\nv = y[:1]"))
    }
    trial = Trial(source, seed=0, device="cpu", asked=True, errors=["refused"], seconds_left=lambda: 20, starts=[start])
    changed, kept = trial.repairs([edits[4], edits[3]])
    assert (changed.accepted, changed.why_not) == (False, "its forward gives other values")
    assert kept.accepted


def test_what_the_repaired_program_gave_is_told() -> None:
    repair = tried(WRITE, (3, "y = y + x"))
    exact = [1 + 1 / torch.cosh(torch.tensor(v, dtype=torch.float64)).item() ** 2 for v in (1.0, 2.0)]
    assert repair.gradients == {"x": pytest.approx(exact, rel=1e-6)}


def test_a_trial_leaves_everything_as_it_was() -> None:
    linecache.cache[FILE] = (1, None, ["before"], FILE)
    autograd: Any = torch.autograd
    engine, state = autograd._engine_run_backward, torch.get_rng_state()
    tried(MODULE, (1, MODULE.split("\n")[0].replace("inplace=True", "inplace=False")))
    assert torch.get_default_dtype() == torch.float32
    assert autograd._engine_run_backward is engine
    assert torch.equal(torch.get_rng_state(), state)
    assert linecache.getlines(FILE) == MODULE.splitlines(keepends=True)


def test_no_time_is_no_trial() -> None:
    assert "no time" in tried(WRITE, (3, "y = y + x"), left=0).why_not


def test_at_most_two_are_tried() -> None:
    edits = [(Edit(3, "y += x", f"y = y + x * {k}"),) for k in (1, 1, 2, 3)]
    trial = Trial(WRITE, seed=0, device="cpu", asked=True, errors=["refused"], seconds_left=lambda: 20)
    assert [repair.edits for repair in trial.repairs(edits)] == [edits[0], edits[2]]
    assert trial.repairs([]) == ()


@pytest.mark.parametrize(
    ("edits", "after"),
    [
        ((Edit(2, "b", "c"),), "a\nc\nd"),
        ((Edit(1, "a", "x\ny"), Edit(3, "d", "z")), "x\ny\nb\nz"),
        ((Edit(2, "b", ""),), "a\nd"),
        ((Edit(2, " b", "c"),), None),
        ((Edit(4, "", "c"),), None),
        ((Edit(0, "d", "c"),), None),
        ((Edit(2, "b", "b"),), None),
        ((Edit(2, "b", "c"), Edit(2, "b", "d")), None),
        ((), None),
    ],
)
def test_edits_apply_to_the_very_lines(edits: tuple[Edit, ...], after: str | None) -> None:
    assert apply_edits("a\nb\nd", edits) == after


@pytest.mark.parametrize(
    ("line", "banned"),
    [
        ("y = (x * 2).requires_grad_()", True),
        ("y.requires_grad_()", True),
        ("y.requires_grad = True", True),
        ("y = torch.tensor(x.item(), requires_grad=True)", True),
        ("torch.autograd.grad(y, x, allow_unused=True)", True),
        ("for i in range(2): y.backward(retain_graph=True)", True),
        ("[y.backward(retain_graph=True) for i in range(2)]", True),
        ("x = torch.randn(3).to(torch.float64).requires_grad_()", False),
        ("x = torch.tensor([1.0, 2.0], requires_grad=True)", False),
        ("p.requires_grad_(False)", False),
        ("y.backward(retain_graph=True)", False),
        ("for i in range(2): y.backward(retain_graph=False)", False),
    ],
)
def test_what_is_never_offered(line: str, banned: bool) -> None:
    assert bool(why_never("pass", line)) is banned
    assert why_never(line, f"{line}\npass") == ""
