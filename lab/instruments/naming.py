"""The program's own names for tensors: variables, entries of lists and dicts, attributes, parameters of modules."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from lab.instruments import torch_private

_DEPTH, _ITEMS = 3, 200


def program_frames(file: str) -> list[types.FrameType]:
    """Frames of ``file`` on this thread's stack, innermost first."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == file:
            found.append(frame)
        frame = frame.f_back
    return found


def named_tensors(scopes: list[Mapping[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor): parameters of modules first, then plain variables, then what is inside other objects.

    A tensor may come more than once. A parameter is best known by its module: a loop variable may name it too.
    """
    visible = [(name, value) for scope in scopes for name, value in scope.items() if not name.startswith("_")]
    ranks = ([], [], [])
    for name, value in visible:
        if isinstance(value, torch.nn.Module):
            ranks[0].append((name, value))
        elif isinstance(value, torch.Tensor):
            ranks[1].append((name, value))
        elif not isinstance(value, (type, types.ModuleType, types.FunctionType)):
            ranks[2].append((name, value))
    for name, value in (pair for rank in ranks for pair in rank):
        yield from _inside(name, value, _DEPTH)


def _inside(name: str, value: Any, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        yield from ((f"{name}.{path}", tensor) for path, tensor in value.named_parameters())
        yield from ((f"{name}.{path}", tensor) for path, tensor in value.named_buffers())
    elif depth and type(value) in (list, tuple):
        for i, item in enumerate(value[:_ITEMS]):
            yield from _inside(f"{name}[{i}]", item, depth - 1)
    elif depth and type(value) is dict:
        for key, item in list(value.items())[:_ITEMS]:
            yield from _inside(f"{name}[{key!r:.40}]", item, depth - 1)
    elif depth and getattr(type(value), "__module__", "") == "__main__" and isinstance(vars_of(value), dict):
        for key, item in list(vars_of(value).items())[:_ITEMS]:
            yield from _inside(f"{name}.{key}", item, depth - 1)


class Names:
    """The program's names for tensors at one moment, by identity and by storage. Valid while the tensors live."""

    def __init__(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._tensors: dict[int, str] = {}
        self._storages: dict[int, str] = {}
        for name, tensor in named:
            self._tensors.setdefault(id(tensor), name)
            if tensor.layout is torch.strided and not torch_private.is_wrapped(tensor):
                self._storages.setdefault(torch_private.storage_key(tensor), name)

    def of(self, tensor: torch.Tensor) -> str:
        """The name of this very tensor, or empty."""
        return self._tensors.get(id(tensor), "")

    def of_id(self, identity: int) -> str:
        return self._tensors.get(identity, "")

    def sharing(self, storage_key: int) -> str:
        """The first named tensor with this storage, or empty."""
        return self._storages.get(storage_key, "")


def vars_of(value: Any) -> dict[str, Any]:
    """Attributes stored on an object, without running code of its class."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
