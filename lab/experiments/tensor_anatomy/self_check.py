"""What this page reads off a program against writing, counting and torch's own answers, on this host."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from lab.contract import silent
from lab.experiments.tensor_anatomy.einsum import read_einsum
from lab.experiments.tensor_anatomy.layout import broken_pair, flat_positions
from lab.experiments.tensor_anatomy.measure import run
from lab.experiments.tensor_anatomy.schema import Params


def _strided() -> list[torch.Tensor]:
    x = torch.arange(24).reshape(2, 3, 4)
    orders = [x.permute(order) for order in itertools.permutations(range(3))]
    return [*orders, *(t[..., 1::2] for t in orders), *(t[:1].expand(3, *t.shape[1:]) for t in orders)]


def _positions(device: str) -> str:
    for tensor in _strided():
        memory = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        at = flat_positions(tensor.shape, tensor.stride(), int(tensor.storage_offset()))
        assert torch.equal(memory[at].reshape(tensor.shape), tensor), f"wrong elements for strides {tensor.stride()}"
    return f"{len(_strided())} tensors read from their memory by strides alone"


def _view_rule(device: str) -> str:
    refused = 0
    for tensor in _strided():
        count = tensor.numel()
        for first in (n for n in range(1, count + 1) if count % n == 0):
            shape = (first, count // first)
            try:
                tensor.view(shape)
                works = True
            except RuntimeError:
                works, refused = False, refused + 1
            said = broken_pair(tensor.shape, tensor.stride(), shape) is None
            assert said == works, f"view{shape} of strides {tensor.stride()}: the rule says {said}"
    return f"{refused} refusals foretold, none too many"


_KINDS = {"x.t()": "view", "x.t().reshape(12)": "new memory", "x.to(x.dtype)": "same object", "x[[0]]": "new memory"}


def _kinds(device: str) -> str:
    for expression, kind in _KINDS.items():
        code = f"x = torch.arange(12.0).reshape(3, 4)\nr = {expression}\n"
        result = run(Params(code=code, device=device), silent)
        x = torch.arange(12.0, device=device).reshape(3, 4)
        eval(expression, {"x": x}).fill_(-1.0)
        arrived = bool((x == -1).any())
        assert result.lines[-1].kind == kind, f"{expression} is told as {result.lines[-1].kind}"
        assert arrived == (kind != "new memory"), f"a write into {expression} says otherwise"
    return f"{len(_KINDS)} expressions, each against a write"


def _promotion(device: str) -> str:
    pairs = run(Params(view="promotion", device=device), silent).promotion
    wrong = [(p.a, p.b) for p in pairs if p.result and p.result != p.documented]
    assert not wrong, f"torch.promote_types says otherwise for {wrong[:3]}"
    return f"{sum(bool(p.result) for p in pairs)} pairs agree with torch.promote_types"


def _einsum(device: str) -> str:
    a, b = torch.randn(2, 3, device=device).double(), torch.randn(3, 4, device=device).double()
    found = read_einsum("ij,jk->ik", [a.cpu(), b.cpu()], torch.einsum("ij,jk->ik", a, b).cpu(), None)
    assert found is not None
    assert found.difference is not None
    assert found.difference < 1e-12, f"the loops differ by {found.difference:.1e}"
    return f"largest difference from the loops {found.difference:.1e}"


ORACLES: dict[str, Callable[[str], str]] = {
    "elements at their places in memory": _positions,
    "when view refuses": _view_rule,
    "view, copy or the same object, against a write": _kinds,
    "dtype promotion against promote_types": _promotion,
    "einsum against its loops": _einsum,
}
"""Name -> the check on a device: what it saw, or AssertionError."""
