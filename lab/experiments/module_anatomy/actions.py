"""Something is done to a copy of the model; which objects are the same afterwards, and which the optimizer still holds."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrizations

from lab.experiments.module_anatomy.census import Census
from lab.experiments.module_anatomy.twin import real_copy
from lab.instruments.describing.values import dtype_name
from lab.records.anatomy import Action, ActionRow


class NothingToDoError(ValueError):
    """The model has nothing that the action could be done to."""


def do_action(subject: Any, census: Census) -> Action:
    """An optimizer over ``parameters()`` is made before; the copy is thrown away."""
    name = subject.params.action
    try:
        model = real_copy(subject.model, census)
        held = dict(_named(model))
        before = {n: (id(t), _text(t)) for n, t in held.items()}
        optimizer = {id(p) for p in model.parameters()}
        ties, keys = ties_of(model), len(model.state_dict())
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            after = _ACTIONS[name](model)
        now = dict(_named(after))
        rows = [_row(n, before.get(n), now.get(n), optimizer) for n in dict.fromkeys((*before, *now))]
        return Action(name, tuple(rows), ties, ties_of(after), keys, len(after.state_dict()))
    except Exception as error:  # noqa: BLE001 - what torch or a class of the program answers is what is shown
        return Action(name, error=f"{type(error).__name__}: {str(error)[:300]}")


def _named(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    parameters = list(model.named_parameters(remove_duplicate=False))
    return [*parameters, *model.named_buffers(remove_duplicate=False)]


def _text(tensor: torch.Tensor) -> str:
    if is_lazy(tensor):
        return "not known yet"
    frozen = "" if tensor.requires_grad or not isinstance(tensor, nn.Parameter) else ", frozen"
    return f"{list(tensor.shape)} {dtype_name(tensor.dtype)} on {tensor.device}{frozen}"


def _row(name: str, before: tuple[int, str] | None, now: torch.Tensor | None, optimizer: set[int]) -> ActionRow:
    return ActionRow(
        name,
        before[1] if before else "",
        _text(now) if now is not None else "",
        before is not None and now is not None and before[0] == id(now),
        before is not None and before[0] in optimizer,
        now is not None and id(now) in optimizer,
    )


def ties_of(model: nn.Module) -> int:
    """Parameters with several names."""
    names: dict[int, int] = defaultdict(int)
    for _, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)] += 1
    return sum(count > 1 for count in names.values())


def _round_trip(model: nn.Module) -> nn.Module:
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    return model


def _places(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """(parent, name, child) for each child with parameters of its own."""
    return [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if next(child.parameters(recurse=False), None) is not None
    ]


def _replace_layer(model: nn.Module) -> nn.Module:
    places = _places(model)
    if not places:
        raise NothingToDoError("The model has no layer inside it.")
    parent, name, child = places[-1]
    setattr(parent, name, copy.deepcopy(child))
    return model


def _tie(model: nn.Module) -> nn.Module:
    """The first two weights of equal shape become one."""
    seen: dict[tuple[int, ...], nn.Module] = {}
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, nn.Parameter) and not is_lazy(weight):
            other = seen.setdefault(tuple(weight.shape), module)
            if other is not module and other.weight is not weight:
                module.weight = other.weight
                return model
    raise NothingToDoError("No two layers have weights of one shape.")


def _parametrize(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d) and isinstance(module.weight, nn.Parameter):
            parametrizations.weight_norm(module)
            return model
    raise NothingToDoError("There is no Linear or Conv layer to parametrize.")


_ACTIONS = {
    "to float64": lambda model: model.to(torch.float64),
    "to meta": lambda model: model.to("meta"),
    "deepcopy": copy.deepcopy,
    "state_dict round trip": _round_trip,
    "replace a layer": _replace_layer,
    "tie": _tie,
    "parametrize": _parametrize,
    "freeze": lambda model: model.requires_grad_(False),
}
