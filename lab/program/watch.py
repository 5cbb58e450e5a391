"""What a program trains, seen while it runs, wherever in it that lives: in ``main()``, in a class, at the top level.

Three things are noticed: which module the program calls and with what, where it calls backward, and whose parameters
an optimizer steps. Values with a graph are not held, so that the program's memory is freed as it would be.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from lab import torch_private
from lab.instruments.describing.names import program_scopes
from lab.program.lines import FILE, program_tree
from lab.program.loss_lines import BackwardCall, LossLines

_KEPT = 16
_ITEMS = 200


@dataclass
class Call:
    """The last call of a module from outside every module."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    """What the program calls the module."""


@dataclass
class Backward:
    """The last backward from one line."""

    lines: LossLines
    names: dict[str, Any]
    """Variables that the slice reads, as they were, without their graphs."""
    calls: list[Call]
    """The last call of each module under gradients."""
    recent: set[int]
    """Ids of the modules called since the optimizer before."""
    stepped: set[int] = field(default_factory=set)
    """Ids of the parameters that an optimizer stepped next."""

    def trained(self) -> list[Call]:
        """The modules that this step trains."""
        stepped = [c for c in self.calls if any(id(p) in self.stepped for p in c.module.parameters())]
        calls = stepped or [c for c in self.calls if id(c.module) in self.recent]
        inner = {id(part) for c in calls for part in c.module.modules() if part is not c.module}
        return [c for c in calls if id(c.module) not in inner]


@dataclass
class Seen:
    """What was noticed, the latest last."""

    calls: dict[int, Call] = field(default_factory=dict)
    backwards: dict[int, Backward] = field(default_factory=dict)
    """By line."""


class Watch:
    """Context manager around a run of the program in this thread."""

    def __init__(self) -> None:
        self.seen = Seen()
        self._depth, self._thread = 0, threading.get_ident()
        self._under_gradients: dict[int, Call] = {}
        self._recent: set[int] = set()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Watch:
        handles = (
            register_module_forward_pre_hook(self._begins),
            register_module_forward_hook(self._ends, with_kwargs=True, always_call=True),
            register_optimizer_step_post_hook(self._stepped),
        )
        for handle in handles:
            self._stack.callback(torch_private.remove_global_hook, handle)
        if not torch_private.missing("engine runs"):
            self._stack.enter_context(torch_private.EngineRuns(self._engine_runs))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _begins(self, module: torch.nn.Module, args: Any) -> None:
        self._depth += threading.get_ident() == self._thread

    def _ends(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        self._depth -= 1
        if self._depth == 0 and next(module.parameters(), None) is not None:
            with contextlib.suppress(Exception):  # classes of the program may raise anything when they are looked at
                self._note_call(module, args, kwargs)

    def _note_call(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        known = self.seen.calls.pop(id(module), None)
        name = known.name if known else _name_of(module)
        given = {key: _without_graph(value) for key, value in kwargs.items()}
        call = Call(module, tuple(map(_without_graph, args)), given, name)
        for calls in (self.seen.calls, self._under_gradients) if torch.is_grad_enabled() else (self.seen.calls,):
            calls.pop(id(module), None)
            calls[id(module)] = call
            while len(calls) > _KEPT:
                del calls[next(iter(calls))]
        if torch.is_grad_enabled():
            self._recent.add(id(module))

    def _engine_runs(self, roots: Any, arguments: tuple[Any, ...], engine: Any) -> Any:
        if threading.get_ident() == self._thread:
            with contextlib.suppress(Exception):
                self._note_backward()
        return engine()

    def _note_backward(self) -> None:
        line = _line()
        place = _place(line) if line else None
        if line is None or place is None or place.loss is None:
            return
        scope = {name: value for names in reversed(program_scopes(FILE)) for name, value in names.items()}
        read = {name: scope[name] for name in place.names if name in scope}
        graphs = {name for name, value in read.items() if _has_graph(value)}
        gone = {name for name in place.stores if name not in scope}
        held = {name for name, value in read.items() if name not in graphs and _holds_graph(value)}
        lines = place.slice(graphs | gone, held)
        self.seen.backwards.pop(line, None)
        if lines and len(self.seen.backwards) < _KEPT:
            names = {name: _without_graph(value) for name, value in read.items() if name in lines.reads}
            self.seen.backwards[line] = Backward(lines, names, list(self._under_gradients.values()), set(self._recent))

    def _stepped(self, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        """After a step the next one begins."""
        ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for backward in self.seen.backwards.values():
            if not backward.stepped:
                backward.stepped = ids
        self._recent.clear()


def _line() -> int | None:
    """Of the innermost frame of the program."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != FILE:
        frame = frame.f_back
    return frame.f_lineno if frame else None


def _place(line: int) -> BackwardCall:
    return _place_in(program_tree(), line)


@functools.lru_cache(64)
def _place_in(tree: ast.Module, line: int) -> BackwardCall:
    return BackwardCall(tree, line)


def _name_of(module: torch.nn.Module) -> str:
    """``net``, ``self.net``, or the name of its class."""
    scopes = program_scopes(FILE)
    for name, value in ((n, v) for scope in scopes for n, v in scope.items()):
        if value is module:
            return name
    for name, value in ((n, v) for scope in scopes for n, v in scope.items()):
        for part, inner in _attributes(value):
            if inner is module:
                return f"{name}.{part}"
    return type(module).__name__


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if issubclass(type(value), (type, types.ModuleType, types.FunctionType)):
        return iter(())
    return islice(((k, v) for k, v in getattr(value, "__dict__", {}).items() if not k.startswith("_")), _ITEMS)


def _without_graph(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach() if value.grad_fn is not None else value
    if type(value) in (list, tuple) and _has_graph(value):  # a hidden state
        return type(value)(map(_without_graph, value))
    return value


def _has_graph(value: Any, depth: int = 2) -> bool:
    if isinstance(value, torch.Tensor):
        return value.grad_fn is not None
    if not depth or not isinstance(value, (list, tuple, set, Mapping)):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return any(_has_graph(part, depth - 1) for part in islice(parts, _ITEMS))


def _holds_graph(value: Any) -> bool:
    return any(_has_graph(part, 1) for _, part in _attributes(value))
