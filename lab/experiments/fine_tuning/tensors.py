"""Every tensor of a model before against after, and what the optimizers hold, by identity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import nn

from lab.records.fine_tuning import Moved

Named = Mapping[str, torch.Tensor]
Gradient = Literal["none", "zero", "live"]


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and floating-point buffers by name, each once."""
    buffers = {name: b for name, b in model.named_buffers() if b.is_floating_point()}
    return {**dict(model.named_parameters()), **buffers}


def copied(tensors: Named) -> dict[str, torch.Tensor]:
    """Copies of their own: an alias would move along."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def held_ids(optimizers: Iterable[torch.optim.Optimizer]) -> set[int]:
    """Identities of what the optimizers hold."""
    return {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}


def gradient_of(tensor: torch.Tensor) -> Gradient:
    """Whether ``.grad`` is there, and not all zeros."""
    if tensor.grad is None:
        return "none"
    grad = tensor.grad.coalesce().values() if tensor.grad.is_sparse else tensor.grad
    return "live" if bool((grad != 0).any()) else "zero"


def moved_rows(before: Named, after: Named, held: set[int], gradients: Mapping[str, Gradient]) -> tuple[Moved, ...]:
    """A row for each tensor that is there before and after with the same shape."""
    rows = []
    for name, tensor in after.items():
        if name not in before or before[name].shape != tensor.shape or tensor.device.type == "meta":
            continue
        old = before[name].detach().double()
        distance = float((tensor.detach().double() - old.to(tensor.device)).norm())
        norm = float(old.norm())
        is_weight = isinstance(tensor, nn.Parameter) or tensor.requires_grad
        rows.append(
            Moved(
                name=name,
                kind="weight" if is_weight else "statistic",
                shape=tuple(tensor.shape),
                distance=distance,
                relative=distance / norm if norm else (math.inf if distance else 0.0),
                trainable=tensor.requires_grad,
                held=id(tensor) in held,
                gradient=gradients.get(name, "none"),
            )
        )
    return tuple(rows)


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Of all tensors in the optimizer's state."""
    tensors = (v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor))
    return sum(t.numel() * t.element_size() for t in tensors)


def backward_nodes(loss: torch.Tensor) -> int:
    """Nodes of the graph behind a loss, leaves' included."""
    seen: set[Any] = set()
    todo: list[Any] = [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [parent for parent, _ in node.next_functions]
    return len(seen)
