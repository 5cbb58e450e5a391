"""Saved tensors: bytes counted by hand, versions, who wrote over them, and that looking neither unpacks nor recomputes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from lab import torch_private
from lab.contract import silent
from lab.experiments.autograd_graph import Params, Result, run
from lab.instruments.graph import book as graph_book
from lab.records.graph import Node, Saved


def observe(code: str, *, fails: bool = False) -> Result:
    result = run(Params(code=code), silent)
    assert (result.fault is not None) == fails, result.fault
    return result


def node(result: Result, label: str) -> Node:
    return next(n for n in result.nodes if n.label == label)


def slot(result: Result, label: str, name: str) -> Saved:
    return next(s for s in node(result, label).saved if s.slot == name)


F32, F64, I64 = 4, 8, 8
N, IN, HIDDEN, OUT = 16, 5, 8, 3

# title -> (program without backward, bytes kept by hand)
KEPT = {
    "mul keeps both factors": ("a = torch.ones(10, requires_grad=True)\nb = torch.ones(10, requires_grad=True)\nloss = (a * b).sum()", 2 * 10 * F32),
    "mul by a constant keeps nothing of the other side": ("a = torch.ones(10, requires_grad=True)\nc = torch.ones(10)\nloss = (a * c).sum()", 10 * F32),
    "the square of one tensor is one storage": ("a = torch.ones(10, requires_grad=True)\nloss = (a * a).sum()", 10 * F32),
    "sigmoid keeps its output": ("a = torch.ones(10, requires_grad=True)\nloss = a.sigmoid().sum()", 10 * F32),
    "an output and an input that are one storage": ("a = torch.ones(10, requires_grad=True)\nb = a.sigmoid()\nloss = (b * b).sum()", 10 * F32),
    "add keeps nothing": ("a = torch.ones(10, requires_grad=True)\nloss = (a + 1).sum()", 0),
    "float64": ("a = torch.ones(10, dtype=torch.float64, requires_grad=True)\nloss = a.exp().sum()", 10 * F64),
    "complex": ("a = torch.ones(10, dtype=torch.complex64, requires_grad=True)\nloss = (a * a).real.sum()", 10 * 8),
    "a slice keeps the whole storage": ("big = torch.ones(1000)\nw = torch.ones(10, requires_grad=True)\nloss = (w * big[:10]).sum()", 1000 * F32),
    "two slices of one storage": ("big = torch.ones(1000)\nw = torch.ones(10, requires_grad=True)\nloss = (w * big[:10] * big[10:20]).sum()", 1000 * F32),
    "an expanded tensor": ("b = torch.ones(1).expand(1000)\nw = torch.ones(1000, requires_grad=True)\nloss = (w * b).sum()", 1 * F32),
    "addmm keeps its input, and the weight when the input needs a gradient": (
        f"x = torch.ones({N}, {IN}, requires_grad=True)\nw = torch.ones({IN}, {OUT}, requires_grad=True)\n"
        f"b = torch.ones({OUT}, requires_grad=True)\nloss = torch.addmm(b, x, w).sum()",
        (N * IN + IN * OUT) * F32,
    ),
    "an MLP": (
        f"net = nn.Sequential(nn.Linear({IN}, {HIDDEN}), nn.Tanh(), nn.Linear({HIDDEN}, {OUT}))\nx = torch.ones({N}, {IN})\n"
        f"loss = F.mse_loss(net(x), torch.zeros({N}, {OUT}))",
        # x, the output of tanh (for tanh and for the second layer), the second weight, prediction and target
        (N * IN + N * HIDDEN + HIDDEN * OUT + 2 * N * OUT) * F32,
    ),
    "a convolution keeps input and weight": (
        "x = torch.ones(2, 3, 8, 8, requires_grad=True)\nw = torch.ones(4, 3, 3, 3, requires_grad=True)\nloss = F.conv2d(x, w).sum()",
        (2 * 3 * 8 * 8 + 4 * 3 * 3 * 3) * F32,
    ),
    "layer_norm keeps input, weight, bias, mean and 1/std": (
        f"x = torch.rand({N}, {HIDDEN}, requires_grad=True)\nm = nn.LayerNorm({HIDDEN})\nloss = m(x).sum()",
        (N * HIDDEN + 2 * HIDDEN + 2 * N) * F32,
    ),
    "max keeps indices": (f"x = torch.rand({N}, {HIDDEN}, requires_grad=True)\nloss = x.max(dim=1).values.sum()", N * I64),
    "relu keeps its output and dropout its mask": (
        f"x = torch.rand({N}, requires_grad=True)\nloss = F.dropout(x.relu(), 0.5).sum()",
        N * F32 + N * F32,
    ),
    "a custom function": (
        "class Keep(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        ctx.save_for_backward(x, torch.zeros(7))\n        return x * 2\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n"
        "x = torch.ones(5, requires_grad=True)\nloss = Keep.apply(x).sum()",
        (5 + 7) * F32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", KEPT)
def test_kept_bytes_by_hand(title: str) -> None:
    code, by_hand = KEPT[title]
    before = observe(code)
    assert (before.kept_bytes, before.kept_bytes_after) == (by_hand, by_hand)
    retained = observe(code + "\nloss.backward(retain_graph=True)")
    assert (retained.kept_bytes, retained.kept_bytes_after) == (by_hand, by_hand)
    freed = observe(code + "\nloss.backward()")
    assert (freed.kept_bytes, freed.kept_bytes_after) == (by_hand, 0)
    assert (freed.passes[0].kept_bytes, freed.passes[0].kept_bytes_after) == (by_hand, 0)
    assert all(s.freed for n in freed.nodes for s in n.saved)


@pytest.mark.parametrize(
    "title", [title for title in KEPT if title not in ("a custom function", "a slice keeps the whole storage")]
)
def test_kept_bytes_against_pack_hooks(title: str) -> None:
    """torch's own view: every tensor that is packed, each storage once."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    torch.manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        exec(KEPT[title][0], names)
    assert sum(kept.values()) == KEPT[title][1]


def test_a_storage_counted_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_private.require("storages")  # its self-test would notice it too
    numbers = itertools.count()
    monkeypatch.setattr(torch_private, "storage_key", lambda tensor: next(numbers))
    assert observe(KEPT["the square of one tensor is one storage"][0]).kept_bytes != 10 * F32


def test_one_storage_has_one_number_and_two_have_two() -> None:
    result = observe(
        "a = torch.ones(10, requires_grad=True)\nb = a.exp()\nloss = (b * b * a).sum()\nloss.backward(retain_graph=True)\n"
    )
    numbers = {(n.label, s.slot): s.storage for n in result.nodes for s in n.saved}
    first, second = (n for n in result.nodes if n.label == "mul")
    by_slot = [{s.slot: s.storage for s in n.saved} for n in (first, second)]
    assert by_slot[0]["self"] == by_slot[0]["other"] == numbers["exp", "result"]
    assert by_slot[1]["other"] != by_slot[1]["self"] != numbers["exp", "result"]
    assert next(s for s in second.saved if s.slot == "other").leaf == "a"


def test_a_part_of_the_graph_is_freed() -> None:
    code = "x = torch.ones(100, requires_grad=True)\na = x.exp()\nb, c = a.sin().sum(), (a * 2).cos().sum()\nloss = b + c\nb.backward()\n"
    result = observe(code)
    two = F64  # the constant 2 is a scalar in float64
    assert result.kept_bytes == 2 * 100 * F32 + two
    assert result.kept_bytes_after == 100 * F32 + two
    assert (slot(result, "sin", "self").freed, slot(result, "cos", "self").freed) == (True, False)
    assert slot(result, "sin", "self").storage == slot(result, "exp", "result").storage


def test_a_gradient_of_a_scaled_loss_frees_the_same_graph() -> None:
    result = observe("x = torch.ones(100, requires_grad=True)\nloss = x.exp().sum()\n(loss * 2).backward()\n")
    assert (result.kept_bytes, result.kept_bytes_after) == (400, 0)


@pytest.mark.parametrize("writes", range(4))
def test_versions_count_the_writes(writes: int) -> None:
    code = "x = torch.ones(4, requires_grad=True)\ny = x.exp()\n" + "y.add_(1)\n" * writes + "loss = y.sum()\n"
    saved = slot(observe(code), "exp", "result")
    assert (saved.saved_version, saved.current_version) == (0, writes)
    assert (saved.changed_line, saved.changed_by) == ((3, "add_") if writes else (None, ""))


WRITES = {
    "a method": ("y.mul_(2)", "mul_"),
    "an operator": ("y += 1", "add_"),
    "a view": ("y[1:].zero_()", "zero_"),
    "a view of a view": ("v = y.view(2, 2)[0]\nv.zero_()", "zero_"),
    "a slice": ("y[0] = 3.0", "slice assignment"),
    "a mask": ("y[y > 0] = 3.0", "slice assignment"),
    "out=": ("with torch.no_grad():\n    torch.add(torch.ones(4), 1, out=y)", "add"),
    "a functional form": ("F.relu(y, inplace=True)", "relu"),
    "a module": ("nn.ReLU(inplace=True)(y)", "relu"),
    "foreach": ("torch._foreach_add_([y], 1.0)", "_foreach_add_"),
    "copy": ("y.detach().copy_(torch.ones(4))", "copy_"),
    "init": ("nn.init.zeros_(y.detach())", "zero_"),
}


@pytest.mark.parametrize("title", WRITES)
def test_the_line_that_saved_and_the_line_that_changed(title: str) -> None:
    write, operation = WRITES[title]
    code = f"x = torch.ones(4, requires_grad=True)\ny = x.exp()\n{write}\nloss = y.sum()\nloss.backward()\n"
    result = observe(code, fails=True)
    saved = slot(result, "exp", "result")
    assert node(result, "exp").line == 2
    assert (saved.saved_version, saved.current_version) == (0, 1)
    assert (saved.changed_line, saved.changed_by) == (2 + write.count("\n") + 1, operation)
    assert result.fault
    assert "exp on line 2 kept its own output" in result.fault.explanation
    assert f"by {operation} on line {saved.changed_line}" in result.fault.explanation


def test_what_moves_no_counter_is_no_write() -> None:
    code = (
        "x = torch.ones(4, requires_grad=True)\ny = x.exp()\ny.data.mul_(3)\ny.data[0] = 2.0\ny.requires_grad_()\n"
        "y.add_(1)\ny.data.mul_(3)\nloss = y.sum()\n"
    )
    saved = slot(observe(code), "exp", "result")
    assert (saved.saved_version, saved.current_version, saved.changed_line, saved.changed_by) == (0, 1, 6, "add_")


def test_an_optimizer_step_between_two_backwards() -> None:
    code = (
        "net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "y = net(torch.ones(1, 2))\na, b = y.sum(), (y * 2).sum()\na.backward(retain_graph=True)\nopt.step()\nb.backward()\n"
    )
    result = observe(code, fails=True)
    assert result.fault
    assert result.fault.line == 7
    changed = [(n.module, s.slot, s.view_of, s.changed_line) for n in result.nodes for s in n.saved if s.changed_line]
    assert changed == [("1 (Linear)", "mat2", "net.1.weight", 6)]


def test_a_wrong_version_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_private.require("versions")
    monkeypatch.setattr(graph_book.torch_private, "version", lambda tensor: 0)
    with pytest.raises(AssertionError):
        test_versions_count_the_writes(2)


@pytest.mark.parametrize(("reentrant", "runs"), [(False, 1), (True, 1)])
@pytest.mark.parametrize("backward", [False, True])
def test_looking_at_a_checkpoint_recomputes_nothing(reentrant: bool, runs: int, backward: bool) -> None:
    code = (
        "from torch.utils.checkpoint import checkpoint\ncalls = []\ndef block(t):\n    calls.append(1)\n    return t.sin().exp()\n"
        f"x = torch.ones(50, requires_grad=True)\ny = checkpoint(block, x, use_reentrant={reentrant})\nloss = y.sum()\n"
    )
    result = observe(code + ("loss.backward()\n" if backward else ""))
    assert len(result.variables["calls"]) == runs + backward
    kinds = [n.kind for n in result.nodes]
    assert kinds.count("checkpoint") == (1 if reentrant else 2)
    if not reentrant:
        markers = [s for n in result.nodes for s in n.saved if s.recomputed]
        assert len(markers) == 2
        assert {(s.shape, s.bytes) for s in markers} == {(None, None)}
        assert result.kept_bytes == 0


def test_looking_unpacks_nothing() -> None:
    code = (
        "packed, unpacked = [], []\n"
        "with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t.numel(), lambda n: unpacked.append(1) or torch.ones(3)):\n"
        "    x = torch.ones(3, requires_grad=True)\n    loss = (x.exp() * x).sum()\n"
    )
    result = observe(code)
    assert (len(result.variables["packed"]), result.variables["unpacked"]) == (3, [])
    with_backward = observe(code + "loss.backward()\n")
    assert len(with_backward.variables["unpacked"]) == 3


CTX = """class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.table = torch.ones(1000)
        ctx.scale = 2.0
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale
x = torch.ones(4, requires_grad=True)
y = Keep.apply(x)
loss = y.sum()
"""


def test_tensors_on_ctx_are_counted_and_live_on_after_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = observe(CTX), observe(CTX + "loss.backward()\n")
    assert before.kept_bytes == (1000 + 4) * F32
    assert (after.kept_bytes, after.kept_bytes_after) == ((1000 + 4) * F32, 1000 * F32)
    written = observe(CTX + "y.grad_fn.table.mul_(2)\nloss.backward()\n")  # no counter is compared for it: no error
    assert slot(written, "Keep", "ctx.table").saved_version is None
    monkeypatch.setattr(torch_private, "is_custom", lambda node: False)  # planted: nobody looks at ctx
    assert observe(CTX).kept_bytes == 4 * F32


def test_tensors_in_containers_on_ctx_are_counted() -> None:
    code = (
        "class Keep(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        ctx.cache = [torch.zeros(7), (torch.zeros(2),)]\n        ctx.kept = {'a': torch.zeros(3), 'b': 1}\n"
        "        return x * 2\n    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n"
        "x = torch.ones(5, requires_grad=True)\nloss = Keep.apply(x).sum()"
    )
    seen = observe(code)
    assert seen.kept_bytes == (7 + 2 + 3) * F32
    slots = {s.slot for n in seen.nodes for s in n.saved}
    assert slots == {"ctx.cache[0]", "ctx.cache[1][0]", "ctx.kept['a']"}
