"""A whole program beside differences of its own forward.

NOTE How the passes of a program are compared with differences.
1. A leaf x requires gradients and has no node. Before the first operation that reads it, also through another tensor on
   its memory, it moves in place to x + sign·d, with d = STEP·max(1, |x|)·u and u random, equal in all runs. Writes into a
   leaf (an initialisation) come before. Version counters do not hear of it.
2. Every run of the engine is written down: its roots r, the gradients g that it starts from, what each leaf got.
3. A run with sign + and one with − give Σ g·(r₊ − r₋) / 2. A run that moves nothing gives Σ (gradient of x)·d. Both are
   the change of the roots along d, to second order, if the gradients are those of the forward.
4. Numbers that the program makes are float64: its default dtype, and the half and single precision that it names.
5. ``after``: moves begin after so many passes, with the first operation that reads a leaf under gradients. What a loop
   carries over from before an update is a constant then, as it is for the engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from lab import torch_private
from lab.instruments.describing.lines import program_line

STEP = 1e-6
MOST_PASSES = 4
_AGREEMENT = 1e-5
"""Largest difference between a gradient and differences of float64, relative to the sizes that were added up."""
_ROUNDING = 1e-9
"""The same relative to the roots: 1e-16 of them, divided by ``STEP``, and some room."""
_SINGLE = (torch.float32, torch.float16, torch.bfloat16)
_LOOKS = {
    *("size", "dim", "numel", "stride", "ndimension", "nelement", "element_size", "is_contiguous", "is_floating_point"),
    *("__len__", "__get__", "untyped_storage", "data_ptr", "retain_grad", "register_hook", "is_complex", "get_device"),
    *("storage_offset", "register_post_accumulate_grad_hook", "__hash__", "is_inference", "_is_view", "requires_grad_"),
}
"""Functions that use no element."""
_VIEWS = {"view", "view_as", "t", "transpose", "permute", "detach"}
"""Functions whose result is on the same memory: an initialisation may write through it, without gradients."""


class Enough(BaseException):
    """Everything that was asked for has been seen."""


@dataclass(eq=False)
class MovedLeaf:
    """A leaf, in the order in which the program used them."""

    tensor: torch.Tensor
    direction: torch.Tensor | None = None
    """d, once it has moved."""
    sums: tuple[float, float] = (math.nan, math.nan)
    """Of its elements and of their squares at the end of the last pass: they show that it was written to."""


@dataclass(eq=False)
class ComparedPass:
    """One run of the engine. Leaves by their number."""

    line: int | None
    roots: list[torch.Tensor]
    started: list[torch.Tensor]
    """The gradients that it starts from, one a root."""
    inputs: frozenset[int] | None
    """Leaves that it was asked about; None for all."""
    updated: bool
    """A leaf was written to since the pass before."""
    comparable: bool
    """It starts from plain tensors that are results, and was asked about leaves only."""
    given: dict[int, torch.Tensor] = field(default_factory=dict)
    directions: dict[int, torch.Tensor] = field(default_factory=dict)
    """d of the leaves that had moved, or would have."""


class NudgedRun(TorchFunctionMode):
    """Use as a context manager around the program. ``sign`` 0 moves nothing. ``only``: leaves that may move, by number."""

    def __init__(
        self,
        file: str,
        sign: int,
        *,
        double: bool = True,
        after: int = 0,
        only: frozenset[int] | None = None,
        end_after: int | None = None,
    ) -> None:
        super().__init__()
        self.passes: list[ComparedPass] = []
        """The first ``MOST_PASSES``."""
        self.raised: set[str] = set()
        """Messages of torch's errors, also those that the program caught."""
        self.lines: list[int | None] = []
        """The line of every pass."""
        self._file, self._sign, self._double = file, sign, double
        self._after, self._only, self._end_after = after, only, end_after
        self._leaves: dict[int, MovedLeaf] = {}
        self._engine = torch_private.EngineRuns(self._pass)
        self._in_engine = False

    @property
    def has_leaves(self) -> bool:
        """Whether an operation was given a leaf that requires gradients."""
        return bool(self._leaves)

    def __enter__(self) -> NudgedRun:
        self._engine.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._engine.__exit__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if self._in_engine:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if self._double:
            func = _DOUBLE.get(func, func)
            args, kwargs = tuple(map(_double, args)), {k: _double(v) for k, v in kwargs.items()}
        read = [*_tensors(args[_written(name) :]), *_tensors(kwargs.values())]
        self._register([*_tensors(args), *read])
        if self._moving() and not _uses_nothing(name, args) and getattr(func, "__module__", "") != "torch.nn.init":
            self._move(read)
        try:
            return func(*args, **kwargs)
        except Exception as error:
            self.raised.add(str(error)[:200])
            raise

    # Leaves.

    def _register(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            if tensor.requires_grad and tensor.grad_fn is None and not torch_private.is_wrapped(tensor):
                self._leaves.setdefault(id(tensor), MovedLeaf(tensor))

    def _moving(self) -> bool:
        return len(self.lines) >= self._after and (not self._after or torch.is_grad_enabled())

    def _move(self, read: list[torch.Tensor]) -> None:
        todo = [(n, leaf) for n, leaf in enumerate(self._leaves.values()) if leaf.direction is None]
        if not todo or not read:
            return
        memories = {key for key in map(_memory, read) if key is not None}
        for number, leaf in todo:
            if _memory(leaf.tensor) in memories and (self._only is None or number in self._only):
                leaf.direction = _direction(leaf.tensor, number)
                if self._sign:
                    leaf.tensor.detach().data.add_(leaf.direction, alpha=self._sign)

    # Passes.

    def _pass(self, roots: Any, arguments: tuple[Any, ...], engine: Any) -> Any:
        if self._in_engine:
            return engine()
        self.lines.append(program_line(self._file))
        self._in_engine = True
        try:
            return self._run_pass(roots, arguments, engine)
        except Exception as error:
            self.raised.add(str(error)[:200])
            raise
        finally:
            self._in_engine = False

    def _run_pass(self, roots: Any, arguments: tuple[Any, ...], engine: Any) -> Any:
        if len(self.passes) >= MOST_PASSES:
            return engine()
        leaves = list(self._leaves.values())
        seen = self._opened(roots, arguments, leaves)
        before = {n: _dense(leaf.tensor.grad) for n, leaf in enumerate(leaves)}
        result = engine()
        asked = arguments[3] if len(arguments) > 3 else ()
        if result is None:  # it fills .grad
            after = ((n, _dense(leaf.tensor.grad)) for n, leaf in enumerate(leaves))
            grown = ((n, now, before[n]) for n, now in after if now is not None)
            seen.given = {n: now if then is None or then.shape != now.shape else now - then for n, now, then in grown}
            seen.given = {n: g for n, g in seen.given.items() if seen.inputs is None or n in seen.inputs}
        elif seen.inputs is not None:
            numbers = {id(leaf.tensor): n for n, leaf in enumerate(leaves)}
            pairs = zip(asked, result, strict=False)
            seen.given = {
                numbers[id(t)]: dense for t, g in pairs if id(t) in numbers and (dense := _dense(g)) is not None
            }
        for leaf in leaves:
            leaf.sums = _sums(leaf.tensor)
        self.passes.append(seen)
        if self._end_after is not None and len(self.passes) >= self._end_after:
            raise Enough
        return result

    def _opened(self, roots: Any, arguments: tuple[Any, ...], leaves: list[MovedLeaf]) -> ComparedPass:
        many = list(roots) if isinstance(roots, (tuple, list)) else [roots]
        started, asked = list(arguments[0]) if arguments else [], arguments[3] if len(arguments) > 3 else ()
        numbers = {id(leaf.tensor): n for n, leaf in enumerate(leaves)}
        plain = all(map(_plain, [*many, *started])) and len(many) == len(started)
        results = plain and all(root.grad_fn is not None for root in many)
        known = all(id(t) in numbers for t in asked)
        return ComparedPass(
            self.lines[-1],
            [root.detach().clone() for root in many] if plain else [],
            [gradient.detach().clone() for gradient in started] if plain else [],
            frozenset(numbers[id(t)] for t in asked if id(t) in numbers) if asked else None,
            any(not math.isnan(leaf.sums[0]) and leaf.sums != _sums(leaf.tensor) for leaf in leaves),
            results and known,
            directions={n: leaf.direction for n, leaf in enumerate(leaves) if leaf.direction is not None},
        )


def difference(middle: ComparedPass, plus: ComparedPass, minus: ComparedPass) -> float | None:
    """How far the gradients of ``middle`` are from the differences, 1 at the limit of what counts as equal; None where
    nothing can be compared."""
    all_moved = bool(middle.given) and middle.given.keys() <= middle.directions.keys()
    if not (middle.comparable and plus.comparable and minus.comparable) or not all_moved:
        return None
    if [r.shape for r in plus.roots] != [r.shape for r in minus.roots] or len(plus.roots) != len(middle.roots):
        return math.inf
    pairs = zip(middle.started, plus.roots, minus.roots, middle.roots, strict=True)
    changes = [(_inner(g, (a - b) / 2), _inner(g.abs(), r.abs())) for g, a, b, r in pairs]
    terms = [_products(middle.given[n], d) for n, d in middle.directions.items() if n in middle.given]
    change, engine = sum(c for c, _ in changes), sum(t.sum().item() for t in terms)
    sizes = max(abs(change), *(t.abs().sum().item() for t in terms)) if terms else abs(change)
    room = _AGREEMENT * sizes + _ROUNDING * STEP * (1 + sum(size for _, size in changes))
    off = abs(change - engine) / room
    return off if math.isfinite(off) else math.inf


def _direction(leaf: torch.Tensor, number: int) -> torch.Tensor:
    """STEP·max(1, |x|)·u, u of size 0.5 to 1.5 with a random sign; real."""
    generator = torch.Generator().manual_seed(1000 + number)
    u = torch.rand(leaf.shape, generator=generator, dtype=torch.float64, device="cpu") + 0.5
    signs = torch.randint(0, 2, leaf.shape, generator=generator, device="cpu") * 2 - 1
    size = leaf.detach().abs().clamp(min=1.0)
    return (STEP * size * (u * signs).to(size.device)).to(size.dtype)


def _products(given: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Re(conj(g)·d), element by element."""
    return torch.real(given.conj() * direction) if given.is_complex() else given * direction


def _inner(a: torch.Tensor, b: torch.Tensor) -> float:
    return _products(a, b).sum().item()


def _sums(tensor: torch.Tensor) -> tuple[float, float]:
    x = tensor.detach().abs()
    return (tensor.detach().sum().real.item() if tensor.numel() else 0.0), (x * x).sum().item()


def _dense(gradient: torch.Tensor | None) -> torch.Tensor | None:
    if gradient is None:
        return None
    return gradient.detach().to_dense() if gradient.layout is not torch.strided else gradient.detach().clone()


def _plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not torch_private.is_wrapped(value)


def _memory(tensor: torch.Tensor) -> int | None:
    try:
        return torch_private.storage_key(tensor)
    except (RuntimeError, NotImplementedError):  # sparse, nested, wrapped
        return None


def _uses_nothing(name: str, args: tuple[Any, ...]) -> bool:
    if name in _LOOKS or torch.is_grad_enabled():  # initialisations run without gradients
        return name in _LOOKS
    if name != "__getitem__":
        return name in _VIEWS
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    return all(isinstance(i, (int, slice, type(None), type(...))) and not isinstance(i, bool) for i in index)


def _written(name: str) -> int:
    """How many of the first arguments are written to."""
    in_place = name.startswith("__i") if name.endswith("__") else name.endswith("_")
    return int(in_place or name in ("__set__", "__setitem__"))


_DOUBLE: dict[Any, Any] = {
    torch.Tensor.float: torch.Tensor.double,
    torch.Tensor.half: torch.Tensor.double,
    torch.Tensor.bfloat16: torch.Tensor.double,
}


def _double(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _SINGLE else value


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        many = value if isinstance(value, (tuple, list)) else (value,)
        yield from (item for item in many if isinstance(item, torch.Tensor) and not is_lazy(item))
