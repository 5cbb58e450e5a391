"""What a forward may change in a model besides its output: buffers, modes, and plain numbers kept as attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from lab.records.modes_models import Changed


class ModelState:
    """The buffers and the numbers that modules keep as attributes, as they are now."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._buffers = [(name, buffer, buffer.clone()) for name, buffer in model.named_buffers()]
        self._numbers = {key: value for key, _, value in _numbers(model)}

    def changes(self) -> tuple[Changed, ...]:
        """What differs from this state now, buffers first."""
        found = [
            Changed(name, "buffer", *_first_difference(before, now))
            for name, now, before in self._buffers
            if not torch.equal(before, now) and not (before.isnan() & now.isnan()).all()
        ]
        for key, _, value in _numbers(self._model):
            if key in self._numbers and self._numbers[key] != value:
                found.append(Changed(".".join(part for part in key if part), "attribute", self._numbers[key], value))
        return tuple(found)

    def restore(self) -> None:
        """Write this state back. Objects stay the same."""
        for _, buffer, value in self._buffers:
            buffer.copy_(value)
        for (path, name), module, value in list(_numbers(self._model)):
            before = self._numbers.get((path, name), value)
            if before != value:
                vars(module)[name] = before


def _numbers(model: nn.Module) -> Iterator[tuple[tuple[str, str], nn.Module, Any]]:
    for path, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if name != "training" and type(value) in (int, float, bool):
                yield (path, name), module, value


def _first_difference(before: torch.Tensor, now: torch.Tensor) -> tuple[float, float]:
    at = int((before != now).flatten().int().argmax())
    return float(before.flatten()[at]), float(now.flatten()[at])
