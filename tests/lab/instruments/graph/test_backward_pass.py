"""The steps of a backward pass: order, what arrives, what is handed on, and what is added to ``.grad``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from lab.contract import silent
from lab.experiments.autograd_graph import Params, Result, run
from lab.records.graph import Step
from tests.lab.instruments.graph.graphs import run_plainly

EXACT = 1e-9

# title -> (leaves in float64, what comes after them)
CHAINS: dict[str, tuple[dict[str, Any], str]] = {
    "sum of paths": ({"x": [0.3, -1.2], "w": [0.5, 2.0]}, "h = torch.sigmoid(x * w)\nloss = (h + x).sum()"),
    "powers": ({"x": 1.7}, "y = x ** 3\nloss = y * x - x / y"),
    "matrix products": (
        {"a": [[0.1, 0.2], [0.3, -0.4]], "b": [[1.0, -1.0], [0.5, 2.0]]},
        "c = a @ b\nd = torch.tanh(c @ a.T)\nloss = (d * d).mean()",
    ),
    "broadcasting": (
        {"x": [[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]], "b": [0.5, -0.5, 1.5]},
        "y = (x - b) * b\nloss = y.exp().sum()",
    ),
    "softmax": ({"z": [0.2, 1.1, -0.7]}, "p = torch.log_softmax(z, 0)\nloss = -(p[1] + 0.1 * p.sum())"),
    "views": (
        {"x": [1.0, 2.0, 3.0, 4.0]},
        "y = x * 2\nv = y.view(2, 2)\nv[0].mul_(3)\nloss = (y * y).sum() + v[1].prod()",
    ),
    "several outputs": (
        {"x": [[3.0, 1.0], [2.0, 5.0]]},
        "a, b = x.unbind(0)\nq, r = torch.linalg.qr(x)\nloss = (a * b).sum() + r.abs().sum() + torch.cat([b, a]).sin().sum()",
    ),
    "norm": ({"x": [[0.5, 1.5, -2.0]], "g": [1.0, 2.0, 0.5]}, "y = F.layer_norm(x, (3,), g)\nloss = (y * y * y).sum()"),
    "convolution": (
        {"x": [[[0.1, 0.5, -0.3, 0.8]]], "k": [[[1.0, -2.0]]]},
        "y = F.conv1d(x, k)\nloss = F.gelu(y).sum()",
    ),
    "recurrence": ({"w": 0.7, "h": 0.2}, "for _ in range(5):\n    h = torch.tanh(w * h + 0.1)\nloss = h * h"),
    "indexing": (
        {"x": [0.1, 0.2, 0.3]},
        "y = x[torch.tensor([0, 0, 2])]\nloss = (y * torch.tensor([1.0, 2.0, 3.0])).sum().log()",
    ),
    "a custom function": (
        {"x": [0.4, -0.9], "y": [2.0, 3.0]},
        "class Both(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, a, b):\n        ctx.save_for_backward(a, b)\n        return a * b, a + b\n"
        "    @staticmethod\n    def backward(ctx, g, h):\n        a, b = ctx.saved_tensors\n        return g * b + h, g * a + h\n"
        "p, q = Both.apply(x, y)\nloss = (p * q).sum()",
    ),
}


def program(title: str, **changed: Any) -> str:
    leaves, body = CHAINS[title]
    lines = [
        f"{name} = torch.tensor({changed.get(name, value)!r}, dtype=torch.float64, requires_grad=True)"
        for name, value in leaves.items()
    ]
    return "torch.set_default_dtype(torch.float64)\n" + "\n".join([*lines, body]) + "\n"


def observe(code: str) -> Result:
    result = run(Params(code=code), silent)
    assert result.fault is None, result.fault
    return result


@pytest.fixture(autouse=True)
def _float32_again() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)


def flat(value: Any) -> list[float]:
    return [x for item in value for x in flat(item)] if isinstance(value, (list, tuple)) else [value]


def shifted(value: Any, at: int, by: float) -> Any:
    """``value`` with its ``at``-th number moved."""
    numbers = torch.tensor(value, dtype=torch.float64)
    numbers.view(-1)[at] += by
    return numbers.tolist()


def differences(title: str, name: str, step: float = 1e-6) -> list[float]:
    """d loss / d leaf by central differences of the program's own text, run without any instrument."""
    value = CHAINS[title][0][name]

    def loss(at: int, by: float) -> float:
        return run_plainly(program(title, **{name: shifted(value, at, by)}))["loss"].item()

    return [(loss(at, step) - loss(at, -step)) / (2 * step) for at in range(len(flat(value)))]


def check_against_differences(title: str, result: Result) -> None:
    leaves = {leaf.name: leaf for leaf in result.leaves}
    assert leaves.keys() >= CHAINS[title][0].keys()
    for name in CHAINS[title][0]:
        assert flat(leaves[name].grad) == pytest.approx(differences(title, name), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("title", CHAINS)
def test_leaf_gradients_against_finite_differences(title: str) -> None:
    check_against_differences(title, observe(program(title) + "loss.backward()\n"))


def test_a_wrong_gradient_differs_from_finite_differences() -> None:
    wrong = program("sum of paths").replace("(h + x)", "(h + 1.001 * x)")
    with pytest.raises(AssertionError):
        check_against_differences("sum of paths", observe(wrong + "loss.backward()\n"))


def check_sums(result: Result) -> None:
    """Per pass: what arrives at a node is what was handed to it; a leaf's ``.grad`` grows by what arrives."""
    outputs = {(e.target, e.slot): (e.source, e.index) for e in result.edges}
    for run_, steps in zip(result.passes, result.backward, strict=True):
        outputs |= {(e.target, e.slot): (e.source, e.index) for e in run_.edges}
        slots: dict[int, list[int]] = {}
        for target, slot in sorted(outputs):
            slots.setdefault(target, []).append(slot)
        received: dict[tuple[int, int], list[list[float]]] = {}
        for step in steps:
            for slot, parent, given in zip(slots.get(step.node, []), step.parents, step.given, strict=True):
                source, index = outputs[step.node, slot]
                assert source == parent
                if given is not None:
                    received.setdefault((source, index), []).append(flat(given))
        for step in steps:
            check_arrival(step, received, is_root=step.node == run_.root)


def check_arrival(step: Step, received: dict[tuple[int, int], list[list[float]]], *, is_root: bool) -> None:
    several = any((step.node, index) in received for index in range(1, 9))
    arrived = (
        step.incoming if several or (isinstance(step.incoming, list) and None in step.incoming) else [step.incoming]
    )
    for index, value in enumerate(arrived):
        parts = received.get((step.node, index), [])
        if parts and not is_root:
            assert flat(value) == pytest.approx([sum(p) for p in zip(*parts, strict=True)], rel=EXACT, abs=EXACT)
    if step.after is not None:
        before = flat(step.before) if step.before is not None else [0.0] * len(flat(step.after))
        added = [a - b for a, b in zip(flat(step.after), before, strict=True)]
        assert flat(step.incoming) == pytest.approx(added, rel=EXACT, abs=EXACT)


@pytest.mark.parametrize("title", CHAINS)
@pytest.mark.parametrize("ending", ["", "loss.backward()\n", "loss.backward(retain_graph=True)\nloss.backward()\n"])
def test_sums_of_contributions(title: str, ending: str) -> None:
    result = observe(program(title) + ending)
    assert len(result.backward) == max(1, ending.count("backward"))
    assert [p.by for p in result.passes] == (["program"] * ending.count("backward") or ["lab"])
    check_sums(result)


def spoil(result: Result, change: Callable[[Step], Step]) -> Result:
    """``result`` with the middle step of its first pass changed."""
    steps = list(result.backward[0])
    middle = next(i for i, step in enumerate(steps) if i and step.given and step.given[0] is not None)
    steps[middle] = change(steps[middle])
    return replace(result, backward=(tuple(steps), *result.backward[1:]))


def test_a_wrong_contribution_is_noticed() -> None:
    result = observe(program("matrix products"))
    with pytest.raises(AssertionError):
        check_sums(spoil(result, lambda step: replace(step, given=(torch.ones(2, 2).tolist(), *step.given[1:]))))


def pairs(result: Result, root: Any) -> dict[int, Any]:
    """Node of the result -> the node at the same place of the same program run without instruments."""
    edges = {(e.target, e.slot): e.source for e in result.edges}
    assert result.root_node is not None
    found, todo = {result.root_node: root}, [result.root_node]
    while todo:
        target = todo.pop()
        for slot, (parent, _) in enumerate(found[target].next_functions):
            if parent is not None and edges[target, slot] not in found:
                found[edges[target, slot]] = parent
                todo.append(edges[target, slot])
    return found


def check_products(title: str, result: Result) -> None:
    """Each step's ``given`` is the vector–Jacobian product that the node itself computes from what arrived."""
    loss = run_plainly(program(title))["loss"]
    live = pairs(result, loss.grad_fn)
    kinds = {node.id: node for node in result.nodes}
    for step in result.backward[0]:
        if kinds[step.node].kind == "leaf":
            continue
        assert kinds[step.node].name == type(live[step.node]).__name__
        several = len(live[step.node]._input_metadata) > 1
        arrived = [None if g is None else torch.tensor(g) for g in (step.incoming if several else [step.incoming])]
        given = live[step.node](*arrived)
        given = given if isinstance(given, tuple) else (given,)
        wanted = [
            g
            if g is None
            else g.sum_to_size(parent._input_metadata[index].shape)  # as the engine does for broadcasting
            for g, (parent, index) in zip(given, live[step.node].next_functions, strict=False)
            if parent is not None
        ]
        assert [g is None for g in step.given] == [g is None for g in wanted]
        for got, want in zip(step.given, wanted, strict=True):
            if want is not None:
                assert flat(got) == pytest.approx(flat(want.tolist()), rel=EXACT, abs=EXACT)


@pytest.mark.parametrize("title", [title for title in CHAINS if title != "a custom function"])
def test_given_is_the_vector_jacobian_product(title: str) -> None:
    check_products(title, observe(program(title)))


def test_a_wrong_product_is_noticed() -> None:
    result = observe(program("norm"))
    with pytest.raises(AssertionError):
        check_products("norm", spoil(result, lambda s: replace(s, given=(shifted(s.given[0], 0, 1e-6), *s.given[1:]))))


@pytest.mark.parametrize("title", CHAINS)
def test_gradients_of_results_are_those_of_retain_grad(title: str) -> None:
    names = run_plainly(program(title) + "for t in list(globals().values()):\n"
                        "    if isinstance(t, torch.Tensor) and t.requires_grad and not t.is_leaf:\n        t.retain_grad()\n"
                        "loss.backward()\n")  # fmt: skip
    result = observe(program(title))
    compared = 0
    for node in result.nodes:
        for name in node.variables:
            tensor = names.get(name)
            if isinstance(tensor, torch.Tensor) and tensor.grad is not None:
                several = tensor.grad_fn is not None and len(tensor.grad_fn._input_metadata) > 1  # pyright: ignore[reportAttributeAccessIssue]
                grad = node.grad[tensor.output_nr] if several else node.grad
                assert flat(grad) == pytest.approx(flat(tensor.grad.tolist()), rel=EXACT, abs=EXACT), name
                compared += 1
    assert compared >= 1 + len(CHAINS[title][0])


def check_order(result: Result) -> None:
    """A node runs after every node of the pass that hands something to it, and only once."""
    for steps in result.backward:
        ran = [step.node for step in steps]
        assert len(set(ran)) == len(ran)
        at = {node: i for i, node in enumerate(ran)}
        late = [(step.node, p) for i, step in enumerate(steps) for p in step.parents if p in at and at[p] < i]
        assert late == []


@pytest.mark.parametrize("title", CHAINS)
def test_engine_order(title: str) -> None:
    check_order(observe(program(title)))


def test_a_wrong_order_is_noticed() -> None:
    result = observe(program("norm"))
    with pytest.raises(AssertionError):
        check_order(replace(result, backward=(tuple(reversed(result.backward[0])),)))
