"""What a tensor was after each operation, and from what it came. Holds no tensor: the program's memory is freed as it would be."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from lab import torch_private
from lab.experiments.tensor_anatomy.watch.words import said
from lab.instruments.describing.values import dtype_name, shape_of
from lab.instruments.graph.storages import Storages

_WITH_PARENTS = 20_000
_KNOWN = 50_000


@dataclass(eq=False, slots=True)
class State:
    """One tensor between two changes of what it is."""

    number: int
    line: int | None
    op: str
    kind: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: str
    storage: int | None
    contiguous: bool
    item_bytes: int
    module: str = ""
    parents: tuple[State, ...] = ()
    name: str = ""
    born: int = 0
    """Number of the operation that made it."""
    used: int = 0
    """Number of the operation that read it last."""
    reduced: tuple[State, int] | None = None
    """Of a sum, a mean and the like without keepdim: over what, along which dimension."""

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def label(self) -> str:
        """Its name, or what made it."""
        return self.name or (f"the result of {said(self.op)}" if self.op else "a tensor")

    def back(self) -> Iterator[State]:
        """This and what it came from, nearest first."""
        todo: list[State] = [self]
        seen: set[int] = set()
        while todo and len(seen) < 5000:
            state = todo.pop(0)
            if id(state) in seen:
                continue
            seen.add(id(state))
            yield state
            todo.extend(state.parents)

    def first(self, began: Callable[[State], bool]) -> State | None:
        """The nearest at which a property began."""
        return next((state for state in self.back() if began(state)), None)


def usable(tensor: torch.Tensor) -> bool:
    """Whether it can be looked at without disturbing a transform: no ``torch.func`` wrapper, no lazy parameter."""
    return not torch_private.is_wrapped(tensor) and shape_of(tensor) is not None


class States:
    """The state of every tensor that was met."""

    def __init__(self) -> None:
        self.storages = Storages()
        self.births: dict[int, State] = {}
        """By number of the storage: the first state in it."""
        self.count = 0
        self.clock = 0
        """Operations so far."""
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], State]] = {}

    def recent(self, tensor: torch.Tensor) -> State | None:
        """Its last state, without a look at whether it still is so."""
        found = self._known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def known(self, tensor: torch.Tensor) -> State | None:
        """Its state, where it has been met and is still the same in shape, strides and memory."""
        state = self.recent(tensor)
        if state is None:
            return None
        if state.shape != tuple(tensor.shape) or state.dtype is not tensor.dtype:
            return None
        if tensor.layout is torch.strided and (
            state.stride != tensor.stride() or state.storage != self.storages.of(tensor).number
        ):
            return None
        return state

    def of(self, tensor: torch.Tensor, line: int | None = None) -> State:
        """Its state; a tensor that nobody saw being made descends from the first one in its memory."""
        found = self.known(tensor)
        if found is not None:
            return found
        strided = tensor.layout is torch.strided
        birth = self.births.get(self.storages.of(tensor).number) if strided else None
        if birth is None:
            return self.made(tensor, line, "", "found", ())
        state = self.made(tensor, birth.line, birth.op, birth.kind, (birth,))
        state.name = birth.name
        return state

    def made(
        self, tensor: torch.Tensor, line: int | None, op: str, kind: str, parents: tuple[State, ...], module: str = ""
    ) -> State:
        """A new state of ``tensor``."""
        strided = tensor.layout is torch.strided
        self.count += 1
        state = State(
            self.count,
            line,
            op,
            kind,
            shape_of(tensor) or (),
            tuple(tensor.stride()) if strided else (),
            int(tensor.storage_offset()) if strided else 0,
            tensor.dtype,
            str(tensor.device),
            self.storages.of(tensor).number if strided else None,
            bool(strided and tensor.is_contiguous()),
            tensor.element_size(),
            module,
            parents if self.count < _WITH_PARENTS else (),
            born=self.clock,
        )
        if len(self._known) > _KNOWN:
            self._known = {key: kept for key, kept in self._known.items() if kept[0]() is not None}
        self._known[id(tensor)] = weakref.ref(tensor), state
        if state.storage is not None:
            self.births.setdefault(state.storage, state)
        return state


def dtype_of(state: State) -> str:
    return dtype_name(state.dtype)
