"""An einsum as the loops that define it, and as the operations that torch makes of it.

out[k, …] = Σ over every letter that is not in the output of the product of the inputs. The loops run in float64.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from lab import torch_private
from lab.instruments.describing.values import is_readable
from lab.records.tensors import Einsum

MOST_PRODUCTS = 20_000


def read_einsum(equation: str, inputs: list[torch.Tensor], result: Any, line: int | None) -> Einsum | None:
    """Its loops, its operations, and how far the result is from the loops; None for what has no letters of its own (``...``)."""
    letters = equation.replace(" ", "")
    if "." in letters or not inputs or not isinstance(result, torch.Tensor):
        return None
    left, _, right = letters.partition("->")
    if "->" not in letters:
        names = left.replace(",", "")
        right = "".join(sorted(c for c in set(names) if names.count(c) == 1))
    terms = left.split(",")
    if len(terms) != len(inputs) or any(len(term) != t.dim() for term, t in zip(terms, inputs, strict=True)):
        return None
    size = {c: n for term, t in zip(terms, inputs, strict=True) for c, n in zip(term, t.shape, strict=True)}
    products = math.prod(size.values())
    difference = None
    if products <= MOST_PRODUCTS and all(is_readable(t) for t in (*inputs, result)) and not result.is_complex():
        difference = (
            float((loops(terms, right, size, inputs) - result.detach().double()).abs().max()) if result.numel() else 0.0
        )
    return Einsum(
        line, equation, tuple(tuple(t.shape) for t in inputs), written(terms, right, size), products,
        plan(equation, inputs), difference,
    )  # fmt: skip


def loops(terms: list[str], right: str, size: dict[str, int], inputs: list[torch.Tensor]) -> torch.Tensor:
    """The definition, in plain Python and float64."""
    inner = [c for c in size if c not in right]
    numbers = [t.detach().double().tolist() for t in inputs]
    flat = []
    for outer in itertools.product(*(range(size[c]) for c in right)):
        at, total = dict(zip(right, outer, strict=True)), 0.0
        for rest in itertools.product(*(range(size[c]) for c in inner)):
            at.update(zip(inner, rest, strict=True))
            product = 1.0
            for term, values in zip(terms, numbers, strict=True):
                picked: Any = values
                for c in term:
                    picked = picked[at[c]]
                product *= picked
            total += product
        flat.append(total)
    return torch.tensor(flat, dtype=torch.float64).reshape([size[c] for c in right])


def written(terms: list[str], right: str, size: dict[str, int]) -> str:
    """The loops as text."""
    inner = [c for c in size if c not in right]
    lines = [f"{'    ' * depth}for {c} in range({size[c]}):" for depth, c in enumerate((*right, *inner))]
    factors = " * ".join(
        f"{'ABCDEFGH'[n % 8]}[{', '.join(term)}]" if term else "ABCDEFGH"[n % 8] for n, term in enumerate(terms)
    )
    target = f"out[{', '.join(right)}]" if right else "out"
    return "\n".join([*lines, f"{'    ' * len(lines)}{target} += {factors}"])


class _Seen(torch_private.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__.split(".")[0])
        return func(*args, **(kwargs or {}))


def plan(equation: str, inputs: list[torch.Tensor]) -> tuple[str, ...]:
    """Operations that it becomes, tried on tensors of the same shapes and strides without data."""
    alike = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in inputs]
    with torch.no_grad(), _Seen() as seen:
        torch.einsum(equation, *alike)
    return tuple(seen.names)
