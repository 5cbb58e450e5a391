"""What this page reads off a program against difference quotients, sums and counts by hand, on this host."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lab.contract import silent
from lab.experiments.autograd_graph.measure import run
from lab.experiments.autograd_graph.schema import Params, Result


def _observe(code: str, device: str) -> Result:
    result = run(Params(code=code, device=device), silent)
    assert result.fault is None, f"the program ended with {result.fault}"
    return result


_POINT = (0.3, -1.2, 0.8)
_CURVE = """torch.set_default_dtype(torch.float64)
x = torch.tensor({point}, requires_grad=True)
h = torch.sigmoid(x * x)
loss = (h.exp() * x + h).sum()
loss.backward()
"""


def _curve(point: tuple[float, ...]) -> float:
    x = torch.tensor(point, dtype=torch.float64)
    h = 1 / (1 + torch.exp(-x * x))
    return float((torch.exp(h) * x + h).sum())


def _gradient(device: str) -> str:
    (leaf,) = _observe(_CURVE.format(point=_POINT), device).leaves
    step, worst = 1e-6, 0.0
    for at, got in enumerate(leaf.grad):
        ahead, behind = ([x + by * (i == at) for i, x in enumerate(_POINT)] for by in (step, -step))
        quotient = (_curve(tuple(ahead)) - _curve(tuple(behind))) / (2 * step)
        worst = max(worst, abs(got - quotient))
    assert worst < 1e-8, f"the gradient differs by {worst:.1e} from the difference quotient"
    return f"largest difference {worst:.1e}"


def _sums(device: str) -> str:
    result = _observe(_CURVE.format(point=_POINT), device)
    received: dict[int, list[list[float]]] = {}
    for step in result.backward[0]:
        for parent, given in zip(step.parents, step.given, strict=True):
            received.setdefault(parent, []).append(given)
    arrived = {step.node: step.incoming for step in result.backward[0]}
    for node, parts in received.items():
        for total, *numbers in zip(arrived[node], *parts, strict=True):
            assert abs(total - sum(numbers)) < 1e-12, f"node {node} got {numbers}, and {total} arrived"
    several = sum(len(parts) > 1 for parts in received.values())
    assert several, "no node of the program was reached by two paths"
    return f"{several} sums of several paths"


def _order(device: str) -> str:
    result = _observe(_CURVE.format(point=_POINT), device)
    at = {step.node: i for i, step in enumerate(result.backward[0])}
    early = [edge for edge in result.edges if at[edge.source] < at[edge.target]]
    assert not early, f"node {early[0].source} ran before {early[0].target}, which hands a gradient to it"
    return f"{len(at)} nodes"


def _saved_bytes(device: str) -> str:
    """a once for both factors, the output of sigmoid, the output of exp: three times 100 · 4 bytes."""
    code = "a = torch.rand(100, requires_grad=True)\nloss = (a * a).sigmoid().exp().sum()\nloss.backward()\n"
    result = _observe(code, device)
    assert (result.kept_bytes, result.kept_bytes_after) == (1200, 0), f"{result.kept_bytes} B, by hand 1,200 B"
    return "1,200 B before backward, 0 B after"


def _versions(device: str) -> str:
    code = "x = torch.ones(4, requires_grad=True)\ny = x.exp()\ny.add_(1)\ny[0] = 2.0\nloss = y.sum()\n"
    (saved,) = (slot for node in _observe(code, device).nodes for slot in node.saved)
    seen = saved.saved_version, saved.current_version, saved.changed_line
    assert seen == (0, 2, 3), f"versions and line {seen}, by hand (0, 2, 3)"
    return "saved at version 0, now 2, first written on line 3"


def _checkpoint(device: str) -> str:
    code = (
        "from torch.utils.checkpoint import checkpoint\ncalls = []\n"
        "def block(t):\n    calls.append(1)\n    return t.sin()\n"
        "x = torch.ones(4, requires_grad=True)\nloss = checkpoint(block, x, use_reentrant=False).sum()\nloss.backward()\n"
    )
    calls = _observe(code, device).variables["calls"]
    assert len(calls) == 2, f"the block ran {len(calls)} times; forward and one recomputation are 2"
    return "the block ran twice, never for looking"


ORACLES: dict[str, Callable[[str], str]] = {
    "gradient against a difference quotient": _gradient,
    "contributions sum to what arrives": _sums,
    "engine order": _order,
    "saved bytes against a count by hand": _saved_bytes,
    "versions of saved tensors": _versions,
    "a checkpoint is not recomputed by looking": _checkpoint,
}
"""Name -> the check on a device: what it saw, or AssertionError."""
