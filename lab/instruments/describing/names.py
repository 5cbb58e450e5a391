"""The program's own names for tensors: variables, entries of lists and dicts, attributes, parameters of modules."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from lab import torch_private

_DEPTH, _ITEMS, _LOOKS = 3, 200, 20_000
class_name: Callable[[type], str] = type.__dict__["__name__"].__get__
"""Name of a class, without asking its metaclass."""
class_module: Callable[[type], str] = type.__dict__["__module__"].__get__
_READS_ITS_LOCALS = {"locals", "vars", "dir", "eval", "exec"}


def program_scopes(file: str) -> list[Mapping[str, Any]]:
    """Variables of the frames of ``file`` on this thread's stack, innermost first."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == file and not _reads_its_locals(frame.f_code):
            found.append(_variables(frame))
        frame = frame.f_back
    return found


@functools.lru_cache(256)
def _reads_its_locals(code: types.CodeType) -> bool:
    """Whether a function asks for its variables as a dict. ``model.eval()`` only has a name in common with that."""
    if not code.co_flags & inspect.CO_OPTIMIZED or _READS_ITS_LOCALS.isdisjoint(code.co_names):
        return False
    return any(
        i.opname in ("LOAD_GLOBAL", "LOAD_NAME") and i.argval in _READS_ITS_LOCALS for i in dis.get_instructions(code)
    )


def failed_scopes(error: BaseException | None, file: str) -> list[Mapping[str, Any]]:
    """Variables of the frames of ``file`` that an error came through, innermost first."""
    found, trace = [], error.__traceback__ if error else None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            found.insert(0, _variables(trace.tb_frame))
        trace = trace.tb_next
    return found


def _variables(frame: types.FrameType) -> Mapping[str, Any]:
    """Before Python 3.13 a function's frame keeps the dict that was asked for, and with it tensors that have no name any more."""
    scope = frame.f_locals
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED or not isinstance(scope, dict):
        return scope
    variables = dict(scope)
    scope.clear()
    return variables


def named_tensors(scopes: list[Mapping[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor): parameters of modules first, then plain variables, then what is inside other objects.

    A tensor may come more than once. A parameter is best known by its module: a loop variable may name it too.
    """
    visible = [(n, v) for scope in scopes for n, v in list(scope.items()) if type(n) is str and not n.startswith("_")]
    ranks = ([], [], [])
    for name, value in visible:
        if issubclass(type(value), torch.nn.Module):  # isinstance would ask the object for its __class__
            ranks[0].append((name, value))
        elif issubclass(type(value), torch.Tensor):
            ranks[1].append((name, value))
        elif not issubclass(type(value), (type, types.ModuleType, types.FunctionType)):
            ranks[2].append((name, value))
    for rank in ranks:
        yield from _inside(rank)


def _inside(named: list[tuple[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in ``named`` values, ``_DEPTH`` containers deep. Runs no code of the program."""
    looked, todo = 0, [(name, value, _DEPTH) for name, value in reversed(named)]
    while todo and looked < _LOOKS:
        name, value, depth = todo.pop()
        looked += 1
        if issubclass(type(value), torch.Tensor):
            if not is_lazy(value):  # no memory before the first call of its module
                yield name, value
        elif issubclass(type(value), torch.nn.Module):
            yield from _of_module(name, value)
        elif depth:
            todo.extend((f"{name}{path}", item, depth - 1) for path, item in reversed(_items(value)))


def _items(value: Any) -> list[tuple[str, Any]]:
    """(path, item) for what a container or an object of the program holds."""
    if type(value) in (list, tuple):
        return [(f"[{i}]", item) for i, item in enumerate(value[:_ITEMS])]
    if type(value) is dict:
        return [(f"[{key!r:.40}]", item) for key, item in islice(value.items(), _ITEMS) if _is_plain(key)]
    if class_module(type(value)) == "__main__":
        return [(f".{key}", item) for key, item in islice(vars_of(value).items(), _ITEMS)]
    return []


def _is_plain(key: Any) -> bool:
    return type(key) is str or (type(key) is int and abs(key) < 1 << 63)


def _of_module(name: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, then buffers, as ``named_parameters`` and ``named_buffers`` give them."""
    modules = list(modules_of(module))
    for kind in ("_parameters", "_buffers"):
        for path, part in modules:
            held = [(f"{name}.{path}.{key}".replace("..", "."), t) for key, t in vars_of(part).get(kind, {}).items()]
            yield from _inside(held)


def modules_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """(path, module) for ``module`` and what is below it, each once; also of one whose ``__init__`` did not call super's."""
    known: set[int] = set()
    todo = [("", module)]
    while todo:
        path, module = todo.pop()
        if id(module) in known:
            continue
        known.add(id(module))
        yield path, module
        children = vars_of(module).get("_modules", {})
        below = [(f"{path}.{name}".lstrip("."), child) for name, child in children.items() if child is not None]
        todo.extend(reversed(below))


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
