"""The four marks of each tensor, measured: it moves, it gets a gradient, the optimizer steps it, it is saved.

One forward, one backward from the loss, one step of the optimizer. What was in ``.grad`` before is put aside and put back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from lab.experiments.module_anatomy.calls import Made, held_by, same_bits, tensors_of
from lab.experiments.module_anatomy.census import Census, leaves_behind
from lab.records.anatomy import Gradient

MOST_COPIED_BYTES = 512 << 20
STEP = 0.1
"""Learning rate of the SGD that stands in where the program has no optimizer."""


@dataclass
class Marks:
    """By identity of the tensors."""

    gradient: dict[int, Gradient] = field(default_factory=dict)
    reached: set[int] | None = None
    owned: set[int] = field(default_factory=set)
    changed: dict[int, bool] = field(default_factory=dict)
    keys: dict[int, list[str]] = field(default_factory=dict)
    optimizer: str = ""
    sizes: dict[int, float] = field(default_factory=dict)
    """2-norm of each gradient."""
    why_not: str = ""
    """Why there is no gradient."""


def measure_marks(
    census: Census, roots: list[tuple[str, nn.Module]], made: list[Made], loss: Callable[[], torch.Tensor] | None
) -> Marks:
    """``loss`` runs the model; None where there is nothing to run."""
    marks = Marks()
    for name, root in roots:
        prefix = f"{name}." if len(roots) > 1 else ""
        for key, tensor in tensors_of(root):
            marks.keys.setdefault(id(tensor), []).append(f"{prefix}{key}")
    modules, tensors = {id(row.module) for row in census.modules}, {id(row.tensor) for row in census.tensors}
    optimizers = [one for one in made if not one.refused and one.concerns(modules, tensors)]
    stands_in = None
    if optimizers:
        marks.owned = {id(p) for one in optimizers for p in held_by(one.optimizer)}
        marks.optimizer = ", ".join(dict.fromkeys(type(one.optimizer).__name__ for one in optimizers))
    elif any(one.refused for one in made):
        marks.optimizer = f"{type(made[-1].optimizer).__name__}, which was refused"
    else:
        parameters = list({id(p): p for _, root in roots for p in root.parameters()}.values())
        marks.owned, marks.optimizer = {id(p) for p in parameters}, "SGD over parameters()"
        stands_in = [p for p in parameters if not is_lazy(p)]
    if loss is not None:
        _one_step(census, marks, [one.optimizer for one in optimizers], stands_in, loss)
    return marks


def _one_step(
    census: Census,
    marks: Marks,
    optimizers: list[torch.optim.Optimizer],
    stands_in: list[nn.Parameter] | None,
    loss: Callable[[], torch.Tensor],
) -> None:
    leaves = {id(row.tensor): row.tensor for row in census.tensors if row.tensor.is_leaf and not is_lazy(row.tensor)}
    stepped = {id(p): p for optimizer in optimizers for p in held_by(optimizer)}
    everyone = leaves | stepped
    aside = {at: leaf.grad for at, leaf in everyone.items()}
    for leaf in everyone.values():
        leaf.grad = None
    bits = sum(t.numel() * t.element_size() for t in leaves.values())
    copies = {at: t.detach().clone() for at, t in leaves.items()} if bits <= MOST_COPIED_BYTES else {}
    try:
        with torch.enable_grad():
            value = loss()
            marks.reached = {id(leaf) for leaf in leaves_behind(value)}
            value.backward()
        marks.gradient = {at: _gradient(leaf) for at, leaf in leaves.items()}
        marks.sizes = {at: float(leaf.grad.norm()) for at, leaf in leaves.items() if leaf.grad is not None}
        for optimizer in optimizers or ([torch.optim.SGD(stands_in, lr=STEP)] if stands_in else []):
            optimizer.step()
        marks.changed = {at: not same_bits(leaves[at], copy) for at, copy in copies.items()}
    except Exception as error:  # noqa: BLE001 - the visitor's model may raise anything, and is told what
        marks.why_not = f"{type(error).__name__}: {str(error)[:200]}"
        if not marks.gradient:
            marks.reached = None
    finally:
        with contextlib.suppress(RuntimeError):
            for at, leaf in everyone.items():
                leaf.grad = aside[at]


def _gradient(leaf: torch.Tensor) -> Gradient:
    if leaf.grad is None:
        return "none"
    held = leaf.grad.coalesce().values() if leaf.grad.is_sparse else leaf.grad
    return "value" if torch.count_nonzero(held.detach()) else "zero"
