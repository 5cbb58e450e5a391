"""What a program does to its modules while it runs, each with its line.

NOTE What is noted, and how.
1. Public methods are wrapped while the program runs, and put back: making a module, giving it an attribute, a buffer or a
   hook, loading, converting, making an optimizer. Each note costs a few microseconds and changes no argument and no answer.
2. The line is that of the innermost frame of the program. A frame called ``forward`` above it means: while a forward ran.
3. Modules and optimizers made on a line are kept until the next one of this line: those of a function that has returned
   can still be read, and a loop keeps one.
4. ``forward`` is wrapped only where the program's text calls one by name.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from lab import torch_private
from lab.experiments.module_anatomy.calls import Calls
from lab.instruments.describing.names import class_module, program_scopes, vars_of
from lab.program.lines import FILE

HOOKS = {
    "register_forward_pre_hook": "forward pre-hook",
    "register_forward_hook": "forward hook",
    "register_full_backward_pre_hook": "full backward pre-hook",
    "register_full_backward_hook": "full backward hook",
}
TENSOR_HOOKS = {"register_hook": "tensor hook", "register_post_accumulate_grad_hook": "post-accumulate hook"}
_PLAIN = (bool, int, float, str, type(None))


@dataclass
class Place:
    """Where something happened."""

    line: int | None
    in_forward: bool
    empty: bool = False
    """An empty container was put there."""
    spot: tuple[int, int] | None = None
    """The line and the place in its bytecode: two calls on one line differ."""


@dataclass
class Born:
    """A module as it was made."""

    place: Place
    module: weakref.ref[nn.Module]
    number: int
    set_at: dict[str, Place] = field(default_factory=dict)
    """By attribute; the last time."""
    first_at: dict[str, Place] = field(default_factory=dict)
    """The first time that a tensor was put there."""
    parameters: int = 0


@dataclass
class Hooked:
    """A hook as it was registered. ``handle``: its number in torch's tables."""

    kind: str
    place: Place
    owner: weakref.ref[Any]
    handle: int
    calls: int
    """How many modules had been called before."""


@dataclass
class MadeInForward:
    """Modules that a forward makes on one line."""

    line: int
    times: int = 0
    """By the program itself; a forward that is run to measure adds none."""
    last: Born | None = None
    class_: str = ""


def place(constructors: Collection[Any] = ()) -> Place:
    """Of the innermost frame of the program. ``constructors``: code of those that are under way; what calls them counts."""
    frame, line, own, spot = sys._getframe(2), None, set(constructors), None
    while frame is not None:
        code = frame.f_code
        if code in own:
            own.remove(code)
        elif code.co_filename == FILE:
            if line is None:
                line, spot = frame.f_lineno, (frame.f_lineno, frame.f_lasti)
            if code.co_name == "forward":
                return Place(line, in_forward=True, spot=spot)
        frame = frame.f_back
    return Place(line, in_forward=False, spot=spot)


@functools.cache
def _constructors(kind: type) -> tuple[Any, ...]:
    """Code of the program's ``__init__`` functions that run when one of this class is made."""
    found = (vars(cls).get("__init__") for cls in kind.__mro__ if class_module(cls) == "__main__")
    return tuple(f.__code__ for f in found if isinstance(f, types.FunctionType))


class ModuleWatch:
    """Context manager around a run of the program."""

    def __init__(self, *, calls_forward: bool) -> None:
        self.calls = Calls()
        self.kept: dict[tuple[int, int], nn.Module] = {}
        self.hooks: list[Hooked] = []
        self.made: dict[int, MadeInForward] = {}
        self._born: dict[int, Born] = {}
        self._by_class: dict[tuple[type, str], Place] = {}
        self._calls_forward = calls_forward
        self._originals: list[tuple[Any, str, Any]] = []
        self._wrapped: set[type] = set()
        self._count = self._called = 0
        self.measuring = False
        """The program has ended, and its model is run to be measured."""

    def __enter__(self) -> ModuleWatch:
        self._wrap(nn.Module, "__init__", self._init)
        self._wrap(nn.Module, "__setattr__", self._setattr)
        self._wrap(nn.Module, "register_buffer", self._named)
        self._wrap(nn.Module, "register_parameter", self._parameter)
        self._wrap(nn.Module, "add_module", self._named)
        for kinds, owner in ((HOOKS, nn.Module), (TENSOR_HOOKS, torch.Tensor)):
            for name, kind in kinds.items():
                self._wrap(owner, name, functools.partial(self._hook, kind))
        for owner, name, around in self.calls.wrappers(place, self.tops_of):
            self._wrap(owner, name, around)
        self._counting = register_module_forward_pre_hook(self._count_call)
        return self

    def _count_call(self, module: nn.Module, inputs: Any) -> None:
        self._called += 1

    def __exit__(self, *error: object) -> None:
        torch_private.remove_global_hook(self._counting)
        while self._originals:
            owner, name, original = self._originals.pop()
            setattr(owner, name, original)
        self._wrapped.clear()

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        original = vars(owner)[name]

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        self._originals.append((owner, name, original))
        setattr(owner, name, wrapped)

    def born(self, module: nn.Module) -> Born | None:
        """How it was made; None for copies, and what was made before the program."""
        found = self._born.get(id(module))
        return found if found and found.module() is module else None

    def set_at(self, module: nn.Module, name: str) -> Place | None:
        """Where the module got this attribute; for a copy, where one of its class did."""
        found = self.born(module)
        return (found.set_at.get(name) if found else None) or self._by_class.get((type(module), name))

    def first_set(self, module: nn.Module, name: str) -> Place | None:
        """Where it got a tensor under this name first, where that was outside of any forward."""
        found = self.born(module)
        at = found.first_at.get(name) if found else None
        return at if at and not at.in_forward else None

    def tops_of(self, tensors: list[torch.Tensor]) -> list[weakref.ref[nn.Module]]:
        """The outermost modules that hold one of these Parameters now."""
        alive = [m for born in self._born.values() if (m := born.module()) is not None]
        parent = {id(child): m for m in alive for child in vars_of(m).get("_modules", {}).values() if child is not None}
        owner = {id(p): m for m in alive for p in vars_of(m).get("_parameters", {}).values() if p is not None}
        tops: dict[int, nn.Module] = {}
        for tensor in tensors:
            module = owner.get(id(tensor))
            for _ in range(100):
                if module is None or id(module) not in parent:
                    break
                module = parent[id(module)]
            if module is not None:
                tops[id(module)] = module
        return [weakref.ref(module) for module in tops.values()]

    def hook(self, handle: int) -> Hooked | None:
        return next((hook for hook in self.hooks if hook.handle == handle), None)

    def _init(self, original: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        at = place(_constructors(type(module)))
        self._count += 1
        found = self._born[id(module)] = Born(at, weakref.ref(module), self._count)
        if at.line is not None and at.spot is not None:
            self.kept[at.spot] = module
            if at.in_forward:
                made = self.made.setdefault(at.line, MadeInForward(at.line))
                made.times, made.last, made.class_ = made.times + (not self.measuring), found, type(module).__name__
        if self._calls_forward:
            self._follow_forward(type(module))
        original(module, *args, **kwargs)

    def _note(self, module: Any, name: str, value: Any) -> None:
        caller = sys._getframe(3)
        if caller.f_code.co_filename != FILE or type(value) in _PLAIN:
            return
        found = self.born(module)
        if found is None:
            self._count += 1
            found = self._born[id(module)] = Born(Place(None, False), weakref.ref(module), self._count)
        at = place()
        at.empty = type(value) in (list, dict, tuple) and not value
        found.set_at[name] = at
        if isinstance(value, torch.Tensor):
            found.first_at.setdefault(name, at)
        if class_module(type(module)) == "__main__":
            self._by_class[type(module), name] = at

    def _setattr(self, original: Any, module: Any, name: str, value: Any) -> None:
        original(module, name, value)
        self._note(module, name, value)

    def _named(self, original: Any, module: Any, name: Any, value: Any = None, *args: Any, **kwargs: Any) -> Any:
        answer = original(module, name, value, *args, **kwargs)
        self._note(module, name, value)
        return answer

    def _parameter(self, original: Any, module: Any, name: Any, value: Any = None, *args: Any, **kwargs: Any) -> Any:
        answer = original(module, name, value, *args, **kwargs)
        found = self.born(module)
        if found is not None:
            found.parameters += value is not None
        self._note(module, name, value)
        return answer

    def _hook(self, kind: str, original: Any, owner: Any, *args: Any, **kwargs: Any) -> Any:
        handle = original(owner, *args, **kwargs)
        self.hooks.append(Hooked(kind, place(), weakref.ref(owner), getattr(handle, "id", -1), self._called))
        return handle

    def _follow_forward(self, kind: type) -> None:
        """Note the calls of ``forward`` that the program writes out, for the class that defines it."""
        owner = next((cls for cls in kind.__mro__ if "forward" in vars(cls) and cls is not nn.Module), None)
        if owner is None or owner in self._wrapped:
            return
        self._wrapped.add(owner)

        def forward(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(2)
            if caller.f_code.co_filename == FILE and not _is_super(caller.f_code.co_name, module):
                self.calls.note_direct(module, caller.f_lineno)
            return original(module, *args, **kwargs)

        self._wrap(owner, "forward", forward)


def _is_super(caller: str, module: nn.Module) -> bool:
    """Whether a forward calls that of its base class."""
    scopes = program_scopes(FILE) if caller == "forward" else []
    return bool(scopes) and scopes[0].get("self") is module
