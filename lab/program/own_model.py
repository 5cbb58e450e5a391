"""A visitor's own model: what a program that defines ``model`` and ``batch``, and perhaps ``loss``, stands for.

NOTE What is read from the program.
1. ``batch`` is a tensor (inputs only), a tuple or list whose last element is the target, or a dict; a dict's target is
   the entry called target, targets, label, labels or y, the others go to the model by name, else in their order.
2. ``loss`` is a function ``loss(model, batch)``, or a criterion such as ``nn.CrossEntropyLoss()``.
3. Without ``loss``: cross-entropy for integer targets, mean squared error for float targets, the mean square of the
   output where there is no target. The output is the first tensor of what the model returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from lab.program.lines import assigned_line

EXAMPLE = """torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
batch = (torch.randn(32, 16), torch.randint(0, 4, (32,)))
"""
"""A short program that is complete: integer targets, so its loss is cross-entropy."""
_TARGETS = ("target", "targets", "label", "labels", "y")


class OwnModelError(ValueError):
    """What is missing or wrong in the program, in one sentence, with what to write."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        """Line of the program, from 1, where one is at fault."""


@dataclass
class OwnModel:
    """The parts that a measurement needs. ``loss`` runs the model; everything is as the program left it."""

    model: torch.nn.Module
    batch: Any
    """What the visitor wrote."""
    inputs: tuple[Any, ...]
    """Positional arguments: ``model(*inputs)``."""
    target: torch.Tensor | None
    loss: Callable[[], torch.Tensor]
    """Runs the model and returns the scalar loss. Raises OwnModelError, and whatever the visitor's code raises."""
    loss_name: str
    """The rule in words: cross-entropy, mean squared error, mean square of the output, or the program's own."""


def own_model(names: Mapping[str, Any]) -> OwnModel:
    """Read the namespace that a program left. Raises OwnModelError."""
    model, batch = _module(names), names.get("batch")
    if batch is None:
        raise OwnModelError("The program defines no batch. Write batch = (inputs, target), or batch = inputs.")
    inputs, target = _split(batch, model)
    rule, loss_name = _loss_rule(names.get("loss"), model, batch, inputs, target)
    return OwnModel(model, batch, inputs, target, lambda: _scalar(rule()), loss_name)


def first_tensor(output: Any) -> torch.Tensor:
    """The output itself, or the first tensor in a tuple, list or dict: an LSTM returns (output, state)."""
    if isinstance(output, torch.Tensor):
        return output
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    for part in parts:
        if isinstance(part, torch.Tensor):
            return part
    raise OwnModelError(
        f"The model returns {type(output).__name__} without a tensor. Return a tensor, or define loss(model, batch)."
    )


def _module(names: Mapping[str, Any]) -> torch.nn.Module:
    model = names.get("model")
    if model is None:
        raise OwnModelError("The program defines no model. Write model = nn.Sequential(...), or another nn.Module.")
    if not isinstance(model, torch.nn.Module):
        kind = f"the class {model.__name__}; create it: model = {model.__name__}()" if isinstance(model, type) else None
        what = kind or f"{type(model).__name__}, not an nn.Module. Write model = nn.Sequential(...)"
        raise OwnModelError(f"model is {what}.", assigned_line("model"))
    return model


def _split(batch: Any, model: torch.nn.Module) -> tuple[tuple[Any, ...], torch.Tensor | None]:
    """(arguments of the model, target)."""
    if isinstance(batch, torch.Tensor):
        return (batch,), None
    if isinstance(batch, Mapping):
        target = next((batch[name] for name in _TARGETS if name in batch), None)
        return _by_name({k: v for k, v in batch.items() if k not in _TARGETS}, model), target
    if isinstance(batch, (tuple, list)) and batch:
        *inputs, target = batch if len(batch) > 1 else (*batch, None)
        nested = len(inputs) == 1 and isinstance(inputs[0], (tuple, list))
        return tuple(inputs[0] if nested else inputs), target
    raise OwnModelError(
        f"batch is {type(batch).__name__}. Write a tensor, a tuple (inputs, target) or a dict.", assigned_line("batch")
    )


def _by_name(given: dict[str, Any], model: torch.nn.Module) -> tuple[Any, ...]:
    try:
        bound = inspect.signature(model.forward).bind(**given)
    except (TypeError, ValueError):  # names that forward does not have
        return tuple(given.values())
    return tuple(given.values()) if bound.kwargs else bound.args


Rule = Callable[[], Any]


def _loss_rule(
    given: Any, model: torch.nn.Module, batch: Any, inputs: tuple[Any, ...], target: Any
) -> tuple[Rule, str]:
    if isinstance(given, torch.nn.Module):
        return lambda: given(first_tensor(model(*inputs)), target), type(given).__name__
    if callable(given):
        return lambda: given(model, batch), "the program's own loss"
    if given is not None:
        raise OwnModelError(
            f"loss is {type(given).__name__}, not a function. Write def loss(model, batch): and return the scalar.",
            assigned_line("loss"),
        )
    if target is None:
        return lambda: first_tensor(model(*inputs)).square().mean(), "mean square of the output"
    if not isinstance(target, torch.Tensor):
        raise OwnModelError(
            f"The target in batch is {type(target).__name__}. Make it a tensor, or define loss(model, batch).",
            assigned_line("batch"),
        )
    if target.is_floating_point():
        return lambda: _mean_squared_error(first_tensor(model(*inputs)), target), "mean squared error"
    return lambda: _cross_entropy(first_tensor(model(*inputs)), target), "cross-entropy"


def _mean_squared_error(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if output.numel() != target.numel():  # broadcasting would compare every output with every target
        raise OwnModelError(
            f"The output has shape {tuple(output.shape)}, the target {tuple(target.shape)}. Give both the same shape.",
            assigned_line("batch"),
        )
    return F.mse_loss(output, target.reshape(output.shape).to(output.dtype))


def _cross_entropy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    target = target.long()
    if output.shape[:-1] == target.shape:  # classes last, such as (B, T, C) against (B, T)
        output, target = output.reshape(-1, output.shape[-1]), target.reshape(-1)
    if output.ndim < 2 or output.shape[1] == 1:
        raise OwnModelError(
            f"The targets are integers and the output has shape {tuple(output.shape)}: cross-entropy needs one output per "
            "class. Define loss(model, batch) with F.binary_cross_entropy_with_logits, or make the targets float.",
            assigned_line("batch"),
        )
    return F.cross_entropy(output, target)


def _scalar(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise OwnModelError(f"loss returned {type(value).__name__}. Return a tensor.", assigned_line("loss"))
    if value.numel() != 1:
        raise OwnModelError(
            f"loss returned shape {tuple(value.shape)}. Reduce it to one number: .mean().", assigned_line("loss")
        )
    return value.reshape(())
