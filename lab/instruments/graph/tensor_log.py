"""Which operation made which tensor from which others, with or without a graph.

NOTE [ How a tensor is remembered ]
1. A ``State`` is one content of one tensor: an in-place write gives the tensor a new state, whose maker is the write and
   which has the old state among its inputs. So the way from an input to a result is a walk over states.
2. Nothing is kept alive: a state has a weak reference to its tensor. Small values are copied to plain numbers, large ones
   leave two flags (holds NaN, holds infinity).
3. A state is good while the version counter stands still. A write through ``.data`` moves no counter: it moves ``epoch``,
   after which every tensor gets a new state.
"""

from __future__ import annotations

import cmath
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from lab import torch_private
from lab.instruments.describing.values import SMALL, is_readable
from lab.records.graph import Plain

MOST = 60_000
"""Operations beyond this are not logged."""


@dataclass(eq=False, slots=True, repr=False)
class State:
    """One content of one tensor. It never changes: another content is another state."""

    number: int
    reference: weakref.ref[torch.Tensor]
    maker: Operation | None
    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    is_leaf: bool
    version: int | None
    epoch: int
    base: State | None = None
    """What it is a view of."""
    elements: tuple[Any, ...] | None = None
    """The numbers of a small tensor, in order: a flat tuple costs the garbage collector nothing."""
    nan: bool = False
    infinite: bool = False
    zero: bool = False
    """A large tensor of zeros."""

    @property
    def finite(self) -> bool:
        return not (self.nan or self.infinite)

    @property
    def value(self) -> Plain:
        """The numbers of a small tensor as a nested list, a number for a scalar; else None."""
        return None if self.elements is None else _nested(iter(self.elements), self.shape)


class Opaque:
    """An argument that is not kept."""


@dataclass(eq=False, slots=True, repr=False)
class Operation:
    """One call of a torch function from the program or from what the program called."""

    number: int
    func: Any
    name: str
    line: int | None
    module: str | None
    args: tuple[Any, ...]
    """Arguments with a ``State`` for each tensor and ``Opaque`` for what is not kept."""
    kwargs: dict[str, Any]
    uses: tuple[State, ...]
    """The tensors among them, as the operation met them."""
    results: tuple[State, ...] = ()
    written: tuple[State, ...] = ()
    plain_result: Any = None
    """A number that left torch."""
    repeats: bool = False
    """It was given an index in which a place stands twice."""
    points: dict[int, torch.Tensor] | None = None
    """Of a function with a backward in Python: its large inputs in float64, by the number of their state."""
    grad_enabled: bool = True
    inference: bool = False


class TensorLog:
    """States of tensors and the operations between them, in order. See the NOTE above."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.epoch = 0
        self._known: dict[int, State] = {}
        self._count = 0

    @property
    def moment(self) -> int:
        """How many operations have run."""
        return len(self.operations)

    def state(self, tensor: torch.Tensor) -> State:
        """What is known of ``tensor`` as it is now."""
        known = self._known.get(id(tensor))
        if known is None or known.reference() is not tensor:
            return self._new(tensor, None)
        if (
            known.epoch == self.epoch
            and known.requires_grad == tensor.requires_grad
            and known.version == torch_private.version(tensor)
        ):
            return known
        return self._new(tensor, known.maker)

    def known(self, tensor: torch.Tensor) -> State | None:
        """The state of a tensor that was met and has not changed since."""
        known = self._known.get(id(tensor))
        if known is None or known.reference() is not tensor or known.epoch != self.epoch:
            return None
        return known if known.version == torch_private.version(tensor) else None

    def numbered(self, numbers: Iterable[int]) -> list[State]:
        """The states with these numbers."""
        wanted = set(numbers)
        found = {use.number: use for call in self.operations for use in call.uses if use.number in wanted}
        made = {s.number: s for call in self.operations for s in (*call.results, *call.written) if s.number in wanted}
        return list((found | made | {s.number: s for s in self.living() if s.number in wanted}).values())

    def living(self) -> list[State]:
        """The present states of tensors that live."""
        return [state for state in self._known.values() if state.reference() is not None]

    def arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], list[tuple[torch.Tensor, State]]]:
        """(template of args, template of kwargs, the tensors in them with how they were met)."""
        found: list[tuple[torch.Tensor, State]] = []
        template = tuple([self._template(a, found, 2) for a in args])
        return template, {k: self._template(v, found, 2) for k, v in kwargs.items()} if kwargs else _NOTHING, found

    def _template(self, value: Any, found: list[tuple[torch.Tensor, State]], depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if issubclass(kind, torch.Tensor):
            if torch_private.is_wrapped(value) or torch_private.refuses_its_graph(value):
                return Opaque
            state = self.state(value)
            found.append((value, state))
            return state
        if kind is slice:
            return value if all(type(v) in _PLAIN for v in (value.start, value.stop, value.step)) else Opaque
        if depth and kind in (tuple, list, torch.Size):
            return kind([self._template(v, found, depth - 1) for v in value])
        return Opaque

    def add(self, operation: Operation, results: list[torch.Tensor], written: list[torch.Tensor]) -> None:
        """Log what ``operation`` made and wrote."""
        if len(self.operations) >= MOST:
            return
        self.operations.append(operation)
        operation.results = tuple([self._new(t, operation) for t in results])
        if written:
            operation.written = tuple([self._new(t, operation) for t in self._with_bases(written)])

    def _with_bases(self, written: list[torch.Tensor]) -> Iterator[torch.Tensor]:
        """The written tensors, and those that they are views of: the write reaches them as well."""
        for tensor in written:
            yield tensor
            base = torch_private.base(tensor)
            if base is not None and all(base is not w for w in written):
                yield base

    def _new(self, tensor: torch.Tensor, maker: Operation | None) -> State:
        self._count += 1
        plain = type(tensor) is torch.Tensor
        shape = torch.Size(()) if tensor.is_nested or (not plain and is_lazy(tensor)) else tensor.shape
        state = State(
            self._count,
            weakref.ref(tensor),
            maker,
            shape,
            tensor.dtype,
            tensor.requires_grad,
            tensor.is_leaf,
            torch_private.version(tensor),
            self.epoch,
        )
        base = torch_private.base(tensor)
        if base is not None:
            state.base = self.state(base)
        self._known[id(tensor)] = state
        _read(state, tensor)
        return state


def _read(state: State, tensor: torch.Tensor) -> None:
    """Copy a small value, and look for NaN and infinity."""
    if not is_readable(tensor) or (type(tensor) is not torch.Tensor and is_lazy(tensor)):
        return
    exact = tensor.dtype in _EXACT
    if tensor.numel() <= SMALL:
        state.elements = _elements(tensor)
        total = 0 if exact else sum(state.elements)
    elif exact or (state.base is not None and state.base.finite):
        return
    else:
        total = tensor.detach().sum().item()
        state.zero = total == 0 and not tensor.detach().any()
    if not cmath.isfinite(total):
        bare = tensor.detach()
        state.nan, state.infinite = bool(bare.isnan().any()), bool(bare.isinf().any())


def _elements(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Its numbers in order. A reshape costs more than all the rest, so matrices go without."""
    dimensions = tensor.dim()
    if dimensions > 2:
        tensor = tensor.reshape(-1)
    numbers = tensor.tolist()
    return (numbers,) if not dimensions else tuple(chain.from_iterable(numbers) if dimensions == 2 else numbers)


def _nested(elements: Iterator[Any], shape: Sequence[int]) -> Plain:
    if not shape:
        value = next(elements)
        return str(value) if isinstance(value, complex) else value
    return [_nested(elements, shape[1:]) for _ in range(shape[0])]


_NOTHING: dict[str, Any] = {}
_PLAIN = {int, float, bool, str, type(None), complex, torch.dtype, torch.device, type(Ellipsis), torch.memory_format}
_EXACT = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
