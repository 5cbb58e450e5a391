"""What the program calls its tensors, and from which operation on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lab.experiments.tensor_anatomy.watch.states import State, States, usable
from lab.instruments.describing.names import named_tensors, program_scopes

_EVENTS, _MAPS, _PLACES = 5_000, 60, 2_000


class Naming:
    """``look`` before each operation: which names the running code can see, and what they stand for."""

    def __init__(self, file: str, scope: Mapping[str, Any], states: States) -> None:
        self.bound: dict[str, State] = {}
        self.events: list[tuple[int, str, State | None]] = []
        self._file, self._scope, self._states = file, scope, states
        self._inside: dict[int, str] = {}
        self._maps = 0

    def scopes(self) -> list[Mapping[str, Any]]:
        """Of the running functions, innermost first, then the program's own."""
        inner = [scope for scope in program_scopes(self._file) if scope is not self._scope]
        return [*inner, self._scope]

    def look(self, step: int, line: int | None) -> None:
        """Compare the visible names with those before."""
        seen: dict[str, State] = {}
        for scope in reversed(self.scopes()):
            for name, value in list(scope.items()):
                if not issubclass(type(value), torch.Tensor) or type(name) is not str or name[0] == "_":
                    continue
                state = self._states.recent(value)
                if state is not None:
                    seen[name] = state
                elif usable(value):
                    seen[name] = self._states.of(value, line)
        self._change(seen, step)

    def finish(self, step: int) -> dict[str, State]:
        """Names at the end, with entries of lists and attributes, but without the parameters of modules."""
        seen = {}
        for name, tensor in named_tensors([self._scope]):
            if usable(tensor) and len(seen) < _PLACES and (name in self._scope or not _in_module(name, self._scope)):
                seen[name] = self._states.of(tensor)
        self._change(seen, step)
        return seen

    def _change(self, seen: dict[str, State], step: int) -> None:
        for name, state in seen.items():
            if self.bound.get(name) is not state:
                state.name = state.name or name
                self._event(step, name, state)
        for name in self.bound.keys() - seen.keys():
            self._event(step, name, None)
        self.bound = seen

    def _event(self, step: int, name: str, state: State | None) -> None:
        if len(self.events) < _EVENTS:
            self.events.append((step, name, state))

    def name(self, tensor: torch.Tensor, state: State) -> None:
        """Give a tensor that nobody named a name: of the module or the list that holds it."""
        if state.name or (state.op and not isinstance(tensor, torch.nn.Parameter)):
            return
        found = self._inside.get(id(tensor))
        if found is None and self._maps < _MAPS:
            self._maps += 1
            self._inside = {}
            for name, held in named_tensors(self.scopes()):
                self._inside.setdefault(id(held), name)
            found = self._inside.get(id(tensor))
        state.name = found or ""

    def sharing(self, storage: int | None) -> list[str]:
        """Names of the tensors in this piece of memory."""
        return [] if storage is None else [name for name, state in self.bound.items() if state.storage == storage]


def _in_module(name: str, scope: Mapping[str, Any]) -> bool:
    top = name.split(".")[0].split("[")[0]
    return issubclass(type(scope.get(top)), (torch.nn.Module, torch.optim.Optimizer))
