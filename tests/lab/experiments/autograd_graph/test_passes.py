"""What is told of each call of the engine, of names, lines, modules, and of places where the graph was cut."""

from __future__ import annotations

from typing import Any

import pytest

from lab.contract import silent
from lab.experiments.autograd_graph import Params, Result, run
from lab.records.graph import Node

X = "x = torch.tensor(2.0, requires_grad=True)\n"


def observe(code: str) -> Result:
    return run(Params(code=code), silent)


def nodes_of(result: Result) -> dict[int, Node]:
    return {n.id: n for n in (*result.nodes, *(n for p in result.passes for n in p.nodes))}


def ran(result: Result, number: int) -> list[str]:
    names = nodes_of(result)
    return [names[step.node].name for step in result.backward[number]]


# title -> (program, [(call, by, line, retain_graph, create_graph)], nodes that each pass ran)
PASSES: dict[str, tuple[str, list[tuple[Any, ...]], list[list[str]]]] = {
    "by the lab": (X + "loss = x ** 2\n", [("loss.backward", "lab", None, True, False)], [["PowBackward0", "AccumulateGrad"]]),
    "by the program": (X + "loss = x ** 2\nloss.backward()\n", [("loss.backward", "program", 3, False, False)], [["PowBackward0", "AccumulateGrad"]]),
    "retained": (
        X + "loss = x ** 2\nloss.backward(retain_graph=True)\nloss.backward()\n",
        [("loss.backward", "program", 3, True, False), ("loss.backward", "program", 4, False, False)],
        [["PowBackward0", "AccumulateGrad"]] * 2,
    ),
    "positional arguments": (
        X + "loss = x ** 2\nloss.backward(torch.tensor(3.0), True, True)\n",
        [("loss.backward", "program", 3, True, True)],
        [["PowBackward0", "AccumulateGrad"]],
    ),
    "autograd.grad": (X + "loss = x ** 2\ntorch.autograd.grad(loss, x)\n", [("torch.autograd.grad", "program", 3, False, False)], [["PowBackward0"]]),
    "keywords of autograd.grad": (
        X + "loss = x ** 2\ntorch.autograd.grad(outputs=loss, inputs=x, create_graph=True)\n",
        [("torch.autograd.grad", "program", 3, True, True)],
        [["PowBackward0"]],
    ),
    "a part of the inputs": (
        X + "w = torch.tensor(3.0, requires_grad=True)\nloss = x * w\nloss.backward(inputs=[w])\n",
        [("loss.backward", "program", 4, False, False)],
        [["MulBackward0", "AccumulateGrad"]],
    ),
    "several roots": (
        X + "a, b = x * 3, x ** 2\ntorch.autograd.backward([a, b])\n",
        [("torch.autograd.backward", "program", 3, False, False)],
        [["PowBackward0", "MulBackward0", "AccumulateGrad"]],
    ),
    "a gradient edge": (
        X + "loss = x ** 2\ntorch.autograd.backward(torch.autograd.graph.get_gradient_edge(loss))\n",
        [("backward", "program", 3, False, False)],
        [["PowBackward0", "AccumulateGrad"]],
    ),
    "in a function": (
        X + "def train(t):\n    t.backward()\nloss = x ** 2\ntrain(loss)\n",
        [("t.backward", "program", 3, False, False)],
        [["PowBackward0", "AccumulateGrad"]],
    ),
    "a gradient of a gradient": (
        X + "g, = torch.autograd.grad(x ** 3, x, create_graph=True)\ng.backward()\n",
        [("torch.autograd.grad", "program", 2, True, True), ("g.backward", "program", 3, False, False)],
        [["PowBackward0"], ["MulBackward0", "MulBackward1", "PowBackward0", "AccumulateGrad"]],
    ),
    "on a graph that was freed": (
        X + "loss = x ** 2\nloss.backward()\nloss.backward()\n",
        [("loss.backward", "program", 3, False, False), ("loss.backward", "program", 4, False, False)],
        [["PowBackward0", "AccumulateGrad"], ["PowBackward0"]],
    ),
    "through an optimizer's closure": (
        X + "def closure():\n    loss = x ** 2\n    loss.backward()\n    return loss\nclosure()\nclosure()\n",
        [("loss.backward", "program", 4, False, False)] * 2,
        [["PowBackward0", "AccumulateGrad"]] * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", PASSES)
def test_calls_of_the_engine(title: str) -> None:
    code, calls, nodes = PASSES[title]
    result = observe(code)
    assert [(p.call, p.by, p.line, p.retain_graph, p.create_graph) for p in result.passes] == calls
    assert [ran(result, i) for i in range(len(result.backward))] == nodes


def test_a_freed_graph_says_where_it_failed() -> None:
    result = observe(PASSES["on a graph that was freed"][0])
    assert result.passes[0].error == ""
    assert "second time" in result.passes[1].error
    assert result.backward[1][-1].given == ()
    assert result.fault
    assert (result.fault.line, result.fault.type) == (4, "RuntimeError")


def test_accumulation_shows_before_and_after() -> None:
    result = observe(X + "for _ in range(3):\n    (x * 5).backward()\n")
    steps = [s[-1] for s in result.backward]
    assert [(s.before, s.incoming, s.after) for s in steps] == [(None, 5.0, 5.0), (5.0, 5.0, 10.0), (10.0, 5.0, 15.0)]


def test_the_last_passes_are_kept_and_the_others_counted() -> None:
    result = observe(X + "for _ in range(33):\n    (x * 5).backward()\n")
    assert (len(result.passes), len(result.backward), result.passes_cut) == (20, 20, 13)
    assert result.backward[-1][-1].after == 165.0


def test_hooks_that_change_a_gradient_are_seen_in_what_arrives() -> None:
    result = observe(X + "y = x ** 2\ny.register_hook(lambda g: g * 10)\nloss = 3 * y\nloss.backward()\n")
    by_label = {nodes_of(result)[s.node].label: s for s in result.backward[0]}
    assert by_label["mul"].given == (3.0,)
    assert (by_label["pow"].incoming, by_label["pow"].given) == (30.0, (120.0,))
    assert by_label["x"].after == 120.0


def test_create_graph_leaves_a_graph_of_the_gradient() -> None:
    result = observe(X + "g, = torch.autograd.grad(x ** 3, x, create_graph=True)\nloss = g * x\n")
    assert {"PowBackward0", "MulBackward0"} <= {n.name for n in result.nodes}
    assert result.root == "loss"
    (leaf,) = result.leaves
    assert leaf.grad == pytest.approx(9 * 4)  # d(3x³)/dx


def test_what_is_shown_without_a_loss() -> None:
    assert observe(X + "y = x * 2\nz = y.sin()\n").root == "z"
    assert observe(X + "y = x * 2\nz = y.sin()\nwith torch.no_grad():\n    w = z * 2\n").root == "z"
    assert observe(X + "x.sin()\n").root == "last result"
    assert observe(X + "loss = 3.0\ny = x * 2\n").root == "y"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = torch.ones(2)\nloss = x.sum()\n", "no tensor of the program requires gradients"),
        (
            X + "y = torch.ones(2)\nloss = y.sum()\n",
            "no differentiable operation used a tensor that requires gradients",
        ),
        (X + "loss = (x * 2).detach()\n", "detach on line 2 gives a tensor without history"),
        (X + "loss = (x * 2).data\n", "data on line 2 gives a tensor without history"),
        (X + "with torch.no_grad():\n    loss = x * 2\n", "line 3 ran with gradients switched off"),
        (X + "with torch.inference_mode():\n    loss = x * 2\n", "line 3 ran in inference mode"),
        (X + "loss = (x * 2 > 1).float()\n", "gt on line 2 gives integers or booleans"),
        (X + "loss = torch.tensor((x * 2).item())\n", "item() on line 2 gives a plain number"),
        ("n = 1\n1 / 0\n", "the program ended before"),
    ],
)
def test_why_there_is_no_graph(code: str, words: str) -> None:
    assert words in observe(code).no_graph


CUTS = {
    "detach": ("y = (x * 2).detach()\n", ("detach", "detach", 2, "y")),
    "data": ("y = x.data\n", ("data", "detach", 2, "y")),
    "no_grad": ("with torch.no_grad():\n    y = x * 2\n", ("mul", "no_grad", 3, "y")),
    "inference_mode": ("with torch.inference_mode():\n    y = x * 2\n", ("mul", "inference_mode", 3, "y")),
    "argmax": ("y = torch.stack([x, x]).argmax()\n", ("argmax", "integer", 2, "y")),
    "item": ("y = x.item()\n", ("item", "leaves torch", 2, "")),
    "float": ("y = float(x.sum())\n", ("__float__", "leaves torch", 2, "")),
    "copy": ("y = torch.tensor(x)\n", ("tensor", "copy", 2, "y")),
}


@pytest.mark.parametrize("title", CUTS)
def test_where_the_graph_was_cut(title: str) -> None:
    code, expected = CUTS[title]
    (cut,) = observe(X + code).cuts
    assert (cut.operation, cut.reason, cut.line, cut.target) == expected


@pytest.mark.parametrize(
    "code",
    [
        "y = x * 2\n",
        "y = x.sum().backward()\n",
        "y = x.shape\n",
        "y = x.requires_grad\n",
        "y = x.clone()\n",
        "y = repr(x)\n",
        "y = x.grad\n",
    ],
)
def test_what_cuts_nothing(code: str) -> None:
    assert observe(X + code).cuts == ()


def test_lines_of_functions_and_long_expressions() -> None:
    code = X + "def f(t):\n    u = t * 2\n    return u.sin()\n\nloss = (\n    f(x)\n    + f(x)\n    .exp()\n)\n"
    lines = sorted((n.label, n.line) for n in observe(code).nodes)
    assert lines == [("add", 7), ("exp", 9), ("mul", 3), ("mul", 3), ("sin", 4), ("sin", 4), ("x", 1)] or lines == [
        ("add", 7), ("exp", 8), ("mul", 3), ("mul", 3), ("sin", 4), ("sin", 4), ("x", 1)
    ]  # fmt: skip


def test_modules_have_paths() -> None:
    code = (
        "class Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.lin = nn.Linear(2, 2)\n"
        "    def forward(self, x):\n        return torch.tanh(self.lin(x)) * 2\n"
        "net = nn.Sequential(Block(), Block())\nloss = net(torch.ones(1, 2)).sum()\n"
    )
    modules = [(n.label, n.module, n.line) for n in observe(code).nodes if n.kind != "leaf"]
    assert ("addmm", "0.lin (Linear)", 6) in modules
    assert ("tanh", "1 (Block)", 6) in modules
    assert ("sum", None, 8) in modules
    assert {leaf.name for leaf in observe(code).leaves} == {
        f"net.{i}.lin.{p}" for i in (0, 1) for p in ("weight", "bias")
    }


def test_names_of_tied_weights_and_containers() -> None:
    code = (
        "emb = nn.Embedding(5, 2)\nhead = nn.Linear(2, 5, bias=False)\nhead.weight = emb.weight\n"
        "ws = [torch.ones(2, requires_grad=True)]\nd = {'k': torch.ones(2, requires_grad=True)}\n"
        "loss = head(emb(torch.tensor([1])) * ws[0] + d['k']).sum()\n"
    )
    result = observe(code)
    assert {leaf.name for leaf in result.leaves} == {"emb.weight", "ws[0]", "d['k']"}
    (tied,) = (n for n in result.nodes if n.label == "emb.weight")
    assert tied.variables == ("emb.weight", "head.weight")


def test_a_leaf_keeps_its_name_when_it_is_given_to_a_result() -> None:
    result = observe(X + "x = x * 2\nx = x.sin()\nx.backward()\n")
    assert [leaf.name for leaf in result.leaves] == ["x"]
    assert result.root == "x"


KINDS = {
    "x.exp()": "function",
    "x.view(1)": "view",
    "(x * 1).mul_(2)": "in-place",
    "x[None]": "view",
    "torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)": "checkpoint",
    "Twice.apply(x)": "custom",
}


@pytest.mark.parametrize("expression", KINDS)
def test_kinds_of_nodes(expression: str) -> None:
    code = (
        "import torch.utils.checkpoint\n" + X + "class Twice(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x):\n        return x * 2\n    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n"
        f"y = {expression}\nloss = y.sum()\n"
    )
    result = observe(code)
    (made,) = (n for n in result.nodes if "y" in n.variables)
    assert made.kind == KINDS[expression]
    assert [n.kind for n in result.nodes if "loss" in n.variables] == ["output"]
    assert [n.kind for n in result.nodes if n.name == "AccumulateGrad"] == ["leaf"]


def test_complex_numbers_are_texts() -> None:
    result = observe(
        "z = torch.tensor([1 + 2j], requires_grad=True)\nloss = (z * z.conj()).real.sum()\nloss.backward()\n"
    )
    assert result.leaves[0].grad == ["(2+4j)"]


def test_sparse_gradients_are_shown_dense_while_small() -> None:
    result = observe("e = nn.Embedding(3, 2, sparse=True)\nloss = e(torch.tensor([1, 1])).sum()\nloss.backward()\n")
    assert result.leaves[0].grad == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    "code", ["with torch.device('meta'):\n    w = torch.ones(3, requires_grad=True)\nloss = (w * w).sum()\n", ""]
)
def test_a_tensor_without_memory_has_no_values(code: str) -> None:
    result = observe(code or "x = torch.ones(2)\n")
    for node in result.nodes:
        assert node.value is None or isinstance(node.value, dict)
    assert result.fault is None
