"""Who holds a tensor, by what the program calls it: a walk from its names through everything that Python can reach.

A path is written as the program would: ``buffer[3]``, ``model.kept``, ``outputs[0]['logits']``; a function's variables
as ``loss.cache``. The shortest path counts. What no name reaches may hang on the context of a custom Function, which
the graph holds, or on a saved tensor of a graph whose root has a name.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lab.torch_private import is_custom, no_subclass_functions

_MOST = 50_000
"""Objects that are looked at."""
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_LEAVES = (str, bytes, int, float, complex, bool, type(None), types.ModuleType, types.BuiltinFunctionType, torch.dtype)


@dataclass(frozen=True)
class Holder:
    """A tensor with a name."""

    path: str
    kind: str
    """variable, attribute, list, dict, closure, hook or context."""
    tensor: torch.Tensor


def tensors_by_name(roots: Mapping[str, Any]) -> Iterator[Holder]:
    """Every tensor that ``roots`` reach, each once, with the shortest path to it."""
    todo: deque[tuple[str, str, Any]] = deque((name, "variable", value) for name, value in list(roots.items()))
    seen, own = {id(roots)}, roots.get("__name__", "")
    with no_subclass_functions():
        while todo and len(seen) < _MOST:
            path, kind, value = todo.popleft()
            if isinstance(value, _LEAVES) or id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, torch.Tensor):
                yield Holder(path, kind, value)
                if (value.grad_fn is None and value.requires_grad) or value.retains_grad:
                    todo.append((f"{path}.grad", "attribute", value.grad))
                if value.grad_fn is not None and is_custom(value.grad_fn):
                    todo.append(
                        (f"ctx of {type(value.grad_fn).__name__.removesuffix('Backward')}", "context", value.grad_fn)
                    )
                continue
            todo.extend(_inside(path, kind, value, own))


def contexts() -> Iterator[Holder]:
    """Tensors among the attributes of contexts of custom Functions that are alive, whoever holds them."""
    for value in gc.get_objects():
        if isinstance(value, torch.autograd.function.FunctionCtx) and is_custom(value):  # pyright: ignore[reportArgumentType]
            for name, tensor in _attributes(value).items():
                if isinstance(tensor, torch.Tensor):
                    yield Holder(f"ctx.{name} of {type(value).__name__.removesuffix('Backward')}", "context", tensor)


def _inside(path: str, kind: str, value: Any, own: str) -> Iterator[tuple[str, str, Any]]:
    if isinstance(value, Mapping):
        inner = kind if kind in ("hook", "context", "closure") else "dict"
        yield from ((f"{path}[{key!r}]", inner, item) for key, item in list(value.items()))
    elif isinstance(value, _CONTAINERS):
        inner = kind if kind in ("hook", "context", "closure") else "list"
        yield from ((f"{path}[{number}]", inner, item) for number, item in enumerate(list(value)))
    elif isinstance(value, types.FunctionType):
        yield from _variables(path, kind, value)
    elif isinstance(value, types.MethodType):
        yield path, kind, value.__self__
    elif isinstance(value, functools.partial):
        yield from ((path, kind, part) for part in (value.func, value.args, value.keywords))
    elif isinstance(value, nn.Module):
        yield from _module(path, value)
    elif kind == "context" or _is_open(value, own):
        inner = "context" if kind == "context" else "attribute"
        yield from ((f"{path}.{name}", inner, item) for name, item in _attributes(value).items())


def _is_open(value: Any, own: str) -> bool:
    """Whether the attributes of an object, or of a class of the program, are the program's business."""
    if isinstance(value, type):
        return value.__module__ == own
    return type(value).__module__.partition(".")[0] not in ("torch", "lab", "typing", "numpy", "weakref")


def _variables(path: str, kind: str, function: types.FunctionType) -> Iterator[tuple[str, str, Any]]:
    inner = "hook" if kind == "hook" else "closure"
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{path}.{name}", inner, cell.cell_contents
        except ValueError:  # not bound yet
            continue
    names = function.__code__.co_varnames
    defaults = function.__defaults__ or ()
    last = function.__code__.co_argcount
    yield from ((f"{path}.{names[last - len(defaults) + i]}", inner, item) for i, item in enumerate(defaults))


def _module(path: str, module: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """Children and tensors under the names that the program knows, hooks last."""
    for name, value in list(vars(module).items()):
        if name in ("_parameters", "_buffers", "_modules"):
            yield from ((f"{path}.{key}", "attribute", item) for key, item in list(value.items()))
        elif name.endswith("_hooks") and isinstance(value, dict):
            yield from ((f"a hook of {path}", "hook", hook) for hook in list(value.values()))
        elif not name.startswith("_"):
            yield f"{path}.{name}", "attribute", value


def _attributes(value: Any) -> dict[str, Any]:
    try:
        return dict(vars(value))
    except TypeError:
        return {}
