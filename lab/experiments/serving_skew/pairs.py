"""Two values of a program that ought to be one: the same names in another order, the same numbers on another scale."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from lab.program.lines import assigned_line, program_tree
from lab.records.serving import Pair

_MOST = 40
_RATIO = 1.5
"""Spreads that differ by less are no scale."""


def pairs_of(names: dict[str, Any]) -> tuple[Pair, ...]:
    """Among the top-level variables, in the order of the program."""
    own = {k: v for k, v in names.items() if not k.startswith("_")}
    lists = {k: [str(item) for item in v] for k, v in own.items() if isinstance(v, (list, tuple)) and _is_names(v)}
    tensors = {k: v.detach().double().cpu() for k, v in own.items() if _is_numbers(v)}
    return (
        *_orders(dict(itertools.islice(lists.items(), _MOST))),
        *_scales(dict(itertools.islice(tensors.items(), _MOST))),
    )


def _read_by_assignments() -> dict[str, set[str]]:
    """Variable -> the names that its last assignment at the top level reads."""
    return {
        target.id: {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        for node in program_tree().body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_names(value: Any) -> bool:
    plain = all(type(item) in (str, int) for item in value)
    return 2 <= len(value) <= 100_000 and plain and len(set(map(str, value))) == len(value)


def _is_numbers(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.is_floating_point()
        and 2 < value.numel() <= 1_000_000
    )


def _orders(lists: dict[str, list[str]]) -> Iterator[Pair]:
    for (a, x), (b, y) in itertools.combinations(lists.items(), 2):
        if x != y and len(x) == len(y) and Counter(x) == Counter(y):
            share = sum(p != q for p, q in zip(x, y, strict=True)) / len(x)
            yield Pair("same names, another order", a, b, share, assigned_line(b))
            return  # what is computed from them follows


def _scales(tensors: dict[str, torch.Tensor]) -> Iterator[Pair]:
    """Tensors that are one another's multiple plus a constant, to rounding, and made from the same variable."""
    read = _read_by_assignments()
    for (a, x), (b, y) in itertools.combinations(tensors.items(), 2):
        together = read.get(a, set()) & read.get(b, set())
        if not together or a in read[b] or b in read[a]:
            continue
        if x.shape != y.shape or not bool(x.isfinite().all()) or not bool(y.isfinite().all()):
            continue
        p, q = x.flatten() - x.mean(), y.flatten() - y.mean()
        if float(p.norm()) == 0.0 or float(q.norm()) == 0.0:
            continue
        along = float((p @ q) / (p.norm() * q.norm()))
        ratio = float(q.norm() / p.norm())
        if abs(along) > 1 - 1e-9 and not 1 / _RATIO < ratio < _RATIO:
            yield Pair("same up to a scale", a, b, ratio, assigned_line(b))
