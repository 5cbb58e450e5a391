"""Everything a model holds, registered or not.

NOTE What is walked.
1. The tables that nn.Module keeps (``_parameters``, ``_buffers``, ``_modules``) are read from the object: no code of its class
   runs. What is found there is registered.
2. Then every other attribute, three containers deep: lists, tuples, dicts, sets, objects and functions of the program;
   attributes of the classes; names outside that the methods read.
3. What is registered somewhere else in the same model is no discovery: an alias costs nothing.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import nn

from lab import torch_private
from lab.experiments.module_anatomy.watch import ModuleWatch, Place
from lab.instruments.describing.names import class_module, vars_of

INTERNAL = frozenset((*vars(nn.Module()), "_compiled_call_impl", "_is_hf_initialized"))
_DEPTH, _ITEMS, MOST = 3, 200, 6000
_CONTAINERS = (list, tuple, set, frozenset)


@dataclass
class FoundModule:
    """A module at one of its places."""

    path: str
    module: nn.Module
    depth: int
    registered: bool
    line: int | None
    set_line: int | None
    again: bool = False
    """It was met before under another name."""


@dataclass
class FoundTensor:
    """A tensor at one of its places."""

    name: str
    tensor: torch.Tensor
    kind: str
    owner: str
    place: Place | None
    way: str = ""


@dataclass
class Hanging:
    """What one attribute holds that is not registered."""

    path: str
    owner: FoundModule
    name: str
    way: str
    place: Place | None
    modules: list[nn.Module] = field(default_factory=list)
    tensors: list[FoundTensor] = field(default_factory=list)


class Census:
    """The whole of what hangs on ``roots``."""

    def __init__(self, roots: list[tuple[str, nn.Module]], watch: ModuleWatch) -> None:
        self.modules: list[FoundModule] = []
        self.tensors: list[FoundTensor] = []
        self.hanging: list[Hanging] = []
        self.cut = 0
        self._watch = watch
        self._known: set[int] = set()
        many = len(roots) > 1
        for name, root in roots:
            if id(root) not in self._known:
                self._registered(root, f"{name}." if many else "", name if many else "", 0, None, True, [])
        self.registered = {id(row.tensor) for row in self.tensors} | {id(row.module) for row in self.modules}
        self.roots = {id(root) for _, root in roots}
        for row in list(self.modules):
            if not row.again:
                self._beside(row)

    def paths(self, module: nn.Module) -> list[str]:
        return [row.path for row in self.modules if row.module is module]

    def _registered(
        self,
        module: nn.Module,
        prefix: str,
        path: str,
        depth: int,
        place: Place | None,
        registered: bool,
        above: list[int],
    ) -> None:
        if len(self.tensors) + len(self.modules) >= MOST:
            self.cut += 1
            return
        born, again = self._watch.born(module), id(module) in self._known
        line = born.place.line if born else None
        self.modules.append(FoundModule(path, module, depth, registered, line, place.line if place else None, again))
        if id(module) in above:  # a module that holds itself
            return
        self._known.add(id(module))
        self._own_tensors(module, prefix, path, registered)
        for name, child in vars_of(module).get("_modules", {}).items():
            if child is not None:
                below = f"{prefix}{name}"
                at = self._watch.set_at(module, name)
                self._registered(child, f"{below}.", below, depth + 1, at, registered, [*above, id(module)])

    def _own_tensors(self, module: nn.Module, prefix: str, path: str, registered: bool) -> None:
        held, beside = vars_of(module), "" if registered else " of an unregistered module"
        fleeting = held.get("_non_persistent_buffers_set", ())
        for table, word in (("_parameters", "parameter"), ("_buffers", "buffer")):
            for name, tensor in held.get(table, {}).items():
                if tensor is not None and (registered or id(tensor) not in self.registered):
                    kind = f"{word}{', not persistent' if name in fleeting and table == '_buffers' else ''}{beside}"
                    at = self._watch.set_at(module, name) or self._born_at(module)
                    self.tensors.append(FoundTensor(f"{prefix}{name}", tensor, kind, path, at))

    def _born_at(self, module: nn.Module) -> Place | None:
        born = self._watch.born(module)
        return born.place if born else None

    def _beside(self, row: FoundModule) -> None:
        """What the attributes of one module hold, its class, and what its methods read from outside."""
        module, prefix = row.module, f"{row.path}." if row.path else ""
        for name, value in list(vars_of(module).items()):
            if name not in INTERNAL and type(name) is str:
                at = self._watch.set_at(module, name)
                if at and at.in_forward and isinstance(value, torch.Tensor) and value.grad_fn is None:
                    at = self._watch.first_set(module, name) or at  # state that a forward updates
                if not (at and at.empty and _is_a_log(value)):
                    self._hang(Hanging(f"{prefix}{name}", row, name, _way(value), at), value)
        for name, value in _class_attributes(type(module)):
            self._hang(Hanging(f"{prefix}{name}", row, name, "class attribute", None), value)
        for way, name, value in _read_outside(type(module)):
            self._hang(Hanging(name, row, name, way, None), value)

    def _hang(self, hanging: Hanging, value: Any) -> None:
        for path, held in _held(value, hanging.path, _DEPTH):
            if id(held) in self.registered or id(held) in self._known or id(held) in self.roots:
                continue
            if isinstance(held, nn.Module):
                first, depth = len(self.tensors), hanging.owner.depth + 1
                self._registered(held, f"{path}.", path, depth, hanging.place, False, [])
                hanging.modules.append(held)
                hanging.tensors += self.tensors[first:]
                for row in [r for r in self.modules if not r.registered and r.path.startswith(path) and not r.again]:
                    self._beside_once(row)
            else:
                self._known.add(id(held))
                at = hanging.place
                kind = (
                    "parameter that is not a leaf any more"
                    if lost_parameter(held, self.registered, at)
                    else "plain tensor"
                )
                found = FoundTensor(path, held, kind, hanging.owner.path, at, hanging.way)
                self.tensors.append(found)
                hanging.tensors.append(found)
        if hanging.modules or hanging.tensors:
            self.hanging.append(hanging)

    def _beside_once(self, row: FoundModule) -> None:
        if id(row.module) not in self.roots:
            self.roots.add(id(row.module))
            self._beside(row)


def lost_parameter(tensor: torch.Tensor, registered: set[int], at: Place | None) -> bool:
    """Whether it was computed, outside of any forward, from a Parameter that nothing has registered."""
    if tensor.grad_fn is None or (at is not None and at.in_forward):
        return False
    leaves = leaves_behind(tensor, 50)
    return len(leaves) == 1 and isinstance(leaves[0], nn.Parameter) and id(leaves[0]) not in registered


def leaves_behind(tensor: torch.Tensor, most: int = 100_000) -> list[torch.Tensor]:
    """The leaves into which a backward from ``tensor`` accumulates; at most ``most`` nodes are walked."""
    todo, seen, found = [tensor.grad_fn], set(), []
    if tensor.grad_fn is None:
        return [tensor] if tensor.requires_grad else []
    while todo and len(seen) < most:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if torch_private.is_leaf_node(node):
            found.append(torch_private.leaf_of(node))
        todo.extend(parent for parent, _ in node.next_functions)
    return found


def _is_a_log(value: Any) -> bool:
    """Whether it holds tensors without a gradient and nothing else, such as losses that were collected."""
    held = [item for _, item in _held(value, "", _DEPTH)]
    return all(isinstance(item, torch.Tensor) and not item.requires_grad for item in held)


def _way(value: Any) -> str:
    if type(value) in _CONTAINERS:
        return "list"
    if type(value) is dict:
        return "dict"
    if isinstance(value, (torch.Tensor, nn.Module)):
        return "attribute"
    return "closure" if callable(value) and class_module(type(value)) != "__main__" else "object"


def _held(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """(path, tensor or module) inside containers, objects and functions of the program."""
    kind = type(value)
    if issubclass(kind, (torch.Tensor, nn.Module)):
        yield path, value
    elif depth and issubclass(kind, (*_CONTAINERS, dict)):
        dicts = issubclass(kind, dict)
        items = dict.items(value) if dicts else enumerate(kind.__iter__(value))
        for key, item in islice(items, _ITEMS):
            if type(item) not in (int, float, str, bool):
                yield from _held(item, f"{path}[{key!r:.40}]", depth - 1)
    elif depth and isinstance(value, functools.partial):
        yield from _held((*value.args, *value.keywords.values()), path, depth - 1)
    elif depth and isinstance(value, types.FunctionType) and value.__module__ == "__main__":
        for name, held in _closed_over(value):
            yield from _held(held, name, depth - 1)
    elif depth and class_module(kind) == "__main__" and not issubclass(kind, type):
        for name, item in islice(vars_of(value).items(), _ITEMS):
            yield from _held(item, f"{path}.{name}", depth - 1)


def _closed_over(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _classes(kind: type) -> Iterator[type]:
    return (cls for cls in kind.__mro__ if class_module(cls) == "__main__")


def _class_attributes(kind: type) -> Iterator[tuple[str, Any]]:
    for cls in _classes(kind):
        for name, value in list(vars(cls).items()):
            if issubclass(type(value), (torch.Tensor, nn.Module, list, tuple, dict)) and not name.startswith("__"):
                yield name, value


def _read_outside(kind: type) -> Iterator[tuple[str, str, Any]]:
    """(closure or global, name, value) for modules and tensors that the methods of the class read from outside."""
    for cls in _classes(kind):
        for function in [f for f in vars(cls).values() if isinstance(f, types.FunctionType)]:
            for name, value in _closed_over(function):
                if issubclass(type(value), (torch.Tensor, nn.Module, list, dict)):
                    yield "closure", name, value
            names = function.__globals__
            for name in _names_in(function.__code__):
                value = names.get(name)
                if issubclass(type(value), (torch.Tensor, nn.Module, list, dict)):
                    yield "global", name, value


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names_in(inner)


def read_in_methods(kind: type, name: str) -> bool:
    """Whether a method of the program other than a constructor mentions the name."""
    return any(
        name in set(_names_in(function.__code__)) | set(function.__code__.co_freevars)
        for cls in _classes(kind)
        for function in vars(cls).values()
        if isinstance(function, types.FunctionType) and function.__name__ != "__init__"
    )
