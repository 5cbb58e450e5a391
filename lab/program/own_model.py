"""A visitor's own model: what a program that defines ``model`` and ``batch``, and perhaps ``loss``, stands for.

NOTE What is read from the program.
1. ``batch`` is a tensor (inputs only), a tuple or list whose last element is the target, or a dict; a dict's target is
   the entry called target, targets, label, labels or y, the others go to the model by name, else in their order.
2. ``loss`` is a function ``loss(model, batch)``, or a criterion such as ``nn.CrossEntropyLoss()``.
3. A forward that takes the target (required, or a parameter named so) gets it; the loss that a model returns, as a
   scalar, as ``.loss`` or under "loss", counts.
4. Other names are read where only one thing is meant: the only module, ``x, y`` and the like, ``criterion``, ``loss_fn``.
   What a training loop left over serves as well.
5. Without ``loss``: cross-entropy for integer targets, mean squared error for float targets, the mean square of the
   output where there is no target. The output is the first tensor of what the model returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
import torch.nn.functional as F

from lab.program.lines import assigned_line

EXAMPLE = """torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
batch = (torch.randn(32, 16), torch.randint(0, 4, (32,)))
"""
"""A short program that is complete: integer targets, so its loss is cross-entropy."""
TARGETS = ("target", "targets", "label", "labels", "y")
MODELS = ("model", "net", "network")
_PAIRS = (
    *(
        ("x", "y"),
        ("X", "Y"),
        ("X", "y"),
        ("xb", "yb"),
        ("inputs", "targets"),
        ("inputs", "labels"),
        ("input", "target"),
    ),
    *(("images", "labels"), ("images", "targets"), ("data", "target"), ("data", "targets"), ("idx", "targets")),
    *(("features", "labels"), ("tokens", "targets"), ("src", "tgt"), ("x_train", "y_train"), ("X_train", "y_train")),
)
_CRITERIA = ("criterion", "loss_fn", "loss_func", "loss_function")


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
    loss_of: Callable[[torch.nn.Module, Any], Callable[[], torch.Tensor]] | None = None
    """``loss`` for another module in its place and a part of the batch; None where ``own_model`` makes it from the names."""


def own_model(names: Mapping[str, Any]) -> OwnModel:
    """Read the namespace that a program left. Raises OwnModelError."""
    model, batch = _module(names), _batch(names)
    inputs, target = _split(batch, model)
    rule, loss_name = _loss_rule(_given_loss(names), model, batch, inputs, target)
    return OwnModel(model, batch, inputs, target, lambda: scalar(rule()), loss_name)


def first_tensor(output: Any) -> torch.Tensor:
    """The output itself, its logits, or the first tensor in a tuple, list, dict or dataclass: an LSTM returns (output, state)."""
    if isinstance(output, torch.Tensor):
        return output
    parts = _parts(output)
    for part in (parts.get("logits"), *parts.values()):
        if isinstance(part, torch.Tensor):
            return part
    raise OwnModelError(
        f"The model returns {type(output).__name__} without a tensor. Return a tensor, or define loss(model, batch)."
    )


def _parts(output: Any) -> dict[Any, Any]:
    """What a model returned, by name or position."""
    if isinstance(output, Mapping):
        return dict(output)
    if isinstance(output, (tuple, list)):
        return dict(enumerate(output))
    return dict(vars(output)) if is_dataclass(output) else {}


def returned_loss(output: Any) -> torch.Tensor | None:
    """The loss in what a model returned: a scalar with a graph, alone or beside the logits."""
    parts = {"loss": output} if isinstance(output, torch.Tensor) else _parts(output)
    named = parts.get("loss")
    for part in [named] if named is not None else parts.values():
        if isinstance(part, torch.Tensor) and part.ndim == 0 and part.is_floating_point():
            return part
    return None


def _module(names: Mapping[str, Any]) -> torch.nn.Module:
    model = next((names[name] for name in MODELS if names.get(name) is not None), None)
    if model is None:
        return _only_module(names)
    if not isinstance(model, torch.nn.Module):
        kind = f"the class {model.__name__}; create it: model = {model.__name__}()" if isinstance(model, type) else None
        what = kind or f"{type(model).__name__}, not an nn.Module. Write model = nn.Sequential(...)"
        raise OwnModelError(f"model is {what}.", assigned_line("model"))
    return model


def _only_module(names: Mapping[str, Any]) -> torch.nn.Module:
    """The one module with parameters that is no part of another."""
    own = {name: m for name, m in names.items() if isinstance(m, torch.nn.Module) and any(True for _ in m.parameters())}
    inner = {id(part) for m in own.values() for part in m.modules() if part is not m}
    tops = {id(m): (name, m) for name, m in own.items() if id(m) not in inner}
    if len(tops) == 1:
        return next(iter(tops.values()))[1]
    if tops:
        found = ", ".join(name for name, _ in tops.values())
        raise OwnModelError(
            f"The program defines no model, and has several modules: {found}. Write model = one of them."
        )
    raise OwnModelError("The program defines no model. Write model = nn.Sequential(...), or another nn.Module.")


def _batch(names: Mapping[str, Any]) -> Any:
    """``batch``, or inputs and target by their usual names."""
    if names.get("batch") is not None:
        return names["batch"]
    tensors = {name for name, value in names.items() if isinstance(value, torch.Tensor)}
    pairs = [pair for pair in _PAIRS if tensors.issuperset(pair)]
    if pairs:
        return tuple(names[name] for name in pairs[-1 if ("xb", "yb") in pairs else 0])
    alone = [name for name in dict.fromkeys(first for first, _ in _PAIRS) if name in tensors]
    if len(alone) == 1:
        return names[alone[0]]
    raise OwnModelError("The program defines no batch. Write batch = (inputs, target), or batch = inputs.")


def _given_loss(names: Mapping[str, Any]) -> Any:
    """``loss`` of the program, or its criterion. The value that a training loop left in ``loss`` is not one."""
    criterion = next((names[name] for name in _CRITERIA if callable(names.get(name))), None)
    loss = names.get("loss")
    if loss is None or isinstance(loss, (torch.Tensor, float)):
        if criterion is not None and not isinstance(criterion, torch.nn.Module):
            return _Criterion(criterion)
        if criterion is not None:
            return criterion
        return loss if names.get("batch") is not None and not _trained(names) else None
    return loss


def _trained(names: Mapping[str, Any]) -> bool:
    return any(isinstance(value, torch.optim.Optimizer) for value in names.values())


@dataclass
class _Criterion:
    """A function of output and target."""

    rule: Callable[[torch.Tensor, Any], Any]


def _split(batch: Any, model: torch.nn.Module) -> tuple[tuple[Any, ...], torch.Tensor | None]:
    """(arguments of the model, target)."""
    if isinstance(batch, torch.Tensor):
        return (batch,), None
    if isinstance(batch, Mapping):
        target = next((batch[name] for name in TARGETS if name in batch), None)
        return _by_name({k: v for k, v in batch.items() if k not in TARGETS or k in _parameters(model)}, model), target
    if isinstance(batch, (tuple, list)) and batch:
        *inputs, target = batch if len(batch) > 1 else (*batch, None)
        nested = len(inputs) == 1 and isinstance(inputs[0], (tuple, list))
        given = tuple(inputs[0] if nested else inputs)
        return (*given, target) if target is not None and _takes_target(model, len(given)) else given, target
    raise OwnModelError(
        f"batch is {type(batch).__name__}. Write a tensor, a tuple (inputs, target) or a dict.", assigned_line("batch")
    )


def _parameters(model: torch.nn.Module) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return {}


def _takes_target(model: torch.nn.Module, given: int) -> bool:
    """Whether forward wants one more argument: a required one, or one that is named as a target."""
    positional = [p for p in _parameters(model).values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if given >= len(positional):
        return False
    return positional[given].default is inspect.Parameter.empty or positional[given].name in TARGETS


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
    if isinstance(given, _Criterion):
        return lambda: given.rule(first_tensor(model(*inputs)), target), "the program's own criterion"
    if callable(given):
        return lambda: given(model, batch), "the program's own loss"
    if given is not None:
        raise OwnModelError(
            f"loss is {type(given).__name__}, not a function. Write def loss(model, batch): and return the scalar.",
            assigned_line("loss"),
        )
    by_target, name = _rule_for(target)

    if target is None or not any(part is target for part in inputs):
        return lambda: by_target(first_tensor(model(*inputs))), name

    def rule() -> Any:
        output = model(*inputs)
        told = returned_loss(output)
        return by_target(first_tensor(output)) if told is None else told

    return rule, f"the loss that the model returns, else {name}"


def _rule_for(target: Any) -> tuple[Callable[[torch.Tensor], torch.Tensor], str]:
    """What the kind of the target says, where the model returns no loss itself."""
    if target is None:
        return lambda output: output.square().mean(), "mean square of the output"
    if not isinstance(target, torch.Tensor):
        raise OwnModelError(
            f"The target in batch is {type(target).__name__}. Make it a tensor, or define loss(model, batch).",
            assigned_line("batch"),
        )
    if target.is_floating_point():
        return lambda output: _mean_squared_error(output, target), "mean squared error"
    return lambda output: _cross_entropy(output, target), "cross-entropy"


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


def scalar(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise OwnModelError(f"loss returned {type(value).__name__}. Return a tensor.", assigned_line("loss"))
    if value.numel() != 1:
        raise OwnModelError(
            f"loss returned shape {tuple(value.shape)}. Reduce it to one number: .mean().", assigned_line("loss")
        )
    return value.reshape(())
