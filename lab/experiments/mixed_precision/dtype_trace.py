"""Operations as they reach the kernels, below autocast: dtypes, casts, what is first not finite, casts that are out of date.

A TorchDispatchMode stands below autocast, so a cast that autocast makes is an operation of its own here.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from lab import torch_private
from lab.program.lines import program_tree
from lab.program.passing import line_now
from lab.records.precision import Operation

_CASTS = {"to", "half", "bfloat16", "type", "float16"}
HALVES = (torch.float16, torch.bfloat16)
_LOOKED = 2_000_000
"""Elements of a tensor that is looked through for NaN and infinity."""
_KINDS, _EVENTS = 600, 12
_UNWRITTEN = ("empty", "new_empty", "resize")
"""Operations whose result holds whatever was in memory."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def op_name(func: Any) -> str:
    """``addmm`` of aten.addmm.default; a cast by that name."""
    name = func.overloadpacket.__name__.strip("_")
    return "cast" if name == "to_copy" else name


def writes(func: Any) -> bool:
    """Whether it writes into its first argument: such operations end in an underscore."""
    return func.overloadpacket.__name__.endswith("_")


def floats(values: Any) -> Iterator[torch.Tensor]:
    """Floating-point tensors in nested arguments."""
    if isinstance(values, torch.Tensor):
        if values.is_floating_point() and values.device.type != "meta":
            yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from floats(value)
    elif isinstance(values, dict):
        yield from floats(list(values.values()))


def is_finite(tensor: torch.Tensor) -> bool:
    """Every element; large tensors and formats without the operation count as finite."""
    if tensor.numel() > _LOOKED or tensor.dtype.itemsize == 1 or tensor.layout is not torch.strided:
        return True
    return bool(tensor.detach().isfinite().all())


class FirstNonfinite(torch_private.TorchDispatchMode):
    """Names the first operation whose result is not finite although what it got was."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self.kind, self.backward = "", "", False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not self.found and all(map(is_finite, floats((args, kwargs)))) and not all(map(is_finite, floats(out))):
            self.found = f"{op_name(func)} in {'backward' if self.backward else 'forward'}"
            self.kind = "nan" if any(bool(t.isnan().any()) for t in floats(out)) else "inf"
        return out


@dataclass(frozen=True)
class Nonfinite:
    """One operation that made something not finite."""

    line: int
    op: str
    dtype: str
    kind: str
    """overflow, or nan."""
    exact: float
    """Largest absolute value that it would have been, of an overflow."""
    of_infinite: bool
    """Its inputs held infinities already."""


@dataclass
class Cast:
    """A weight that autocast cast, and its version then."""

    made: torch.Tensor
    weight: torch.Tensor
    version: int | None
    line: int


@dataclass(frozen=True)
class Stale:
    """A cast that was used after its weight had been changed."""

    cast_line: int
    changed_line: int
    used_line: int
    shape: tuple[int, ...]


class DtypeTrace(torch_private.TorchDispatchMode):
    """Context manager around the run of a program in this thread."""

    def __init__(self, scaled: Callable[[], bool] = lambda: False) -> None:
        super().__init__()
        self._scaled = scaled
        """Whether gradients carry a scale now: what overflows then is the scaler's business."""
        self.kinds: dict[tuple[Any, ...], Operation] = {}
        self.cut = 0
        self.nonfinite: list[Nonfinite] = []
        self.stale: list[Stale] = []
        self.low_line = 0
        """Line of the last operation whose result has 16 bits though an input has 32."""
        self._casts: dict[int, Cast] = {}
        self._changed: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        line = line_now()
        if line:
            self._note(func, args, kwargs or {}, out, line)
        return out

    def _note(self, func: Any, args: Any, kwargs: Any, out: Any, line: int) -> None:
        inputs, outputs = list(floats((args, kwargs))), list(floats(out))
        if writes(func):
            self._changed |= dict.fromkeys(map(id, floats(args[:1])), line)
        if not outputs:
            return
        op, first = op_name(func), outputs[0]
        cast = op == "cast" and bool(inputs) and inputs[0].dtype != first.dtype
        self._count(line, op, inputs, first, cast)
        if cast:
            self._note_cast(inputs[0], first, line)
        elif first.dtype in HALVES:
            self.low_line = line
        for tensor in inputs:
            known = self._casts.get(id(tensor))
            if known is not None and torch_private.version(known.weight) != known.version:
                changed = self._changed.get(id(known.weight), 0)
                self.stale.append(Stale(known.line, changed, line, tuple(known.weight.shape)))
                del self._casts[id(tensor)]
        if (
            len(self.nonfinite) < _EVENTS
            and inputs
            and not op.startswith(_UNWRITTEN)
            and not all(map(is_finite, outputs))
        ):
            self._note_nonfinite(func, args, kwargs, inputs, outputs, line)

    def _count(self, line: int, op: str, inputs: list[torch.Tensor], out: torch.Tensor, cast: bool) -> None:
        kinds = tuple(dtype_name(t.dtype) for t in inputs)
        cached = cast and inputs[0].is_leaf and inputs[0].requires_grad and torch.is_autocast_cache_enabled()
        key = (line, op, kinds, out.dtype)
        known = self.kinds.get(key)
        if known is not None:
            self.kinds[key] = replace(known, count=known.count + 1)
        elif len(self.kinds) < _KINDS:
            self.kinds[key] = Operation(line, op, kinds, dtype_name(out.dtype), cast, cached)
        else:
            self.cut += 1

    def _note_cast(self, weight: torch.Tensor, made: torch.Tensor, line: int) -> None:
        low = made.dtype in HALVES and weight.dtype == torch.float32 and not _casts_itself(line)
        if low and isinstance(weight, nn.Parameter) and len(self._casts) < 500:
            self._casts[id(made)] = Cast(made, weight, torch_private.version(weight), line)

    def _note_nonfinite(self, func: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor], line: int) -> None:  # fmt: skip
        whole = all(map(is_finite, inputs))
        bad = next(t for t in outputs if not is_finite(t))
        new_nan = bool(bad.isnan().any()) and not any(bool(t.isnan().any()) for t in inputs if t.numel() <= _LOOKED)
        name, dtype = op_name(func), dtype_name(bad.dtype)
        if new_nan:
            self.nonfinite.append(Nonfinite(line, name, dtype, "nan", math.nan, not whole))
        elif whole and bad.dtype in HALVES and not self._scaled():
            exact = self._in_float64(func, args, kwargs)
            if exact is not None and math.isfinite(exact) and exact > torch.finfo(bad.dtype).max * 0.99:
                self.nonfinite.append(Nonfinite(line, name, dtype, "overflow", exact, False))

    def _in_float64(self, func: Any, args: Any, kwargs: Any) -> float | None:
        """Largest absolute value of the same operation on the same numbers in float64; None where it cannot be asked."""
        if writes(func) or torch.Tag.nondeterministic_seeded in func.tags:
            return None
        wide_args, wide_kwargs = _widened(args), _widened({k: v for k, v in kwargs.items() if k != "dtype"})
        if op_name(func) == "cast":
            return float(wide_args[0].abs().max())
        try:
            out = next(floats(func(*wide_args, **wide_kwargs)))
        except (RuntimeError, NotImplementedError, StopIteration, TypeError):
            return None
        return float(out.abs().max()) if out.numel() else None


def _casts_itself(line: int) -> bool:
    """Whether the program casts on this line, rather than autocast."""
    calls = (node for node in ast.walk(program_tree()) if isinstance(node, ast.Call) and node.lineno == line)
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in _CASTS for call in calls)


def _widened(value: Any) -> Any:
    """Floating-point tensors in nested arguments as float64."""
    if isinstance(value, torch.Tensor):
        return value.detach().double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(map(_widened, value))
    return {k: _widened(v) for k, v in value.items()} if isinstance(value, dict) else value
