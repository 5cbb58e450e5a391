"""What an operation did to numbers: wrapped, overflowed, lost an addition, cut a fraction. Looked at while the values are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from lab.contract import Site
from lab.experiments.tensor_anatomy.watch.calls import Call, Row
from lab.experiments.tensor_anatomy.watch.states import dtype_of
from lab.instruments.describing.values import is_readable
from lab.records.tensors import Note

MOST = 1 << 20
"""Elements of a tensor that is looked at."""
_SMALL_INTEGERS = (torch.uint8, torch.int8, torch.int16)
_WRAPS = {
    "add",
    "sub",
    "rsub",
    "mul",
    "neg",
    "add_",
    "sub_",
    "mul_",
    "matmul",
    "mm",
    "iadd",
    "isub",
    "imul",
    "radd",
    "rmul",
}
ADDS = {"add_", "sub_", "iadd", "isub"}
_SUMS = {"add", "sub", "radd"}
_GROWS = {
    "mul",
    "add",
    "sub",
    "exp",
    "pow",
    "square",
    "matmul",
    "mm",
    "bmm",
    "linear",
    "sum",
    "mul_",
    "add_",
    "rmul",
    "div",
    "einsum",
    "cumsum",
    "norm",
    "prod",
}
_EPSILON = 1e-5
_CASTS = {"to", "type", "byte", "char", "short", "int", "long", "half", "bfloat16", "float"}


def readable(tensor: torch.Tensor) -> bool:
    return is_readable(tensor) and tensor.device.type == "cpu" and 0 < tensor.numel() <= MOST


def keep_before(call: Call) -> torch.Tensor | None:
    """The target of an in-place operation as it is now, where a check will need it."""
    if call.op in ADDS | {"mul_", "imul"} and call.inputs:
        target = call.inputs[0][0]
        if readable(target) and target.numel() <= 4096:
            return target.detach().clone()
    return None


def wrapped(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """Small integers that came out different from the same in int64."""
    if call.op not in _WRAPS or not isinstance(result, torch.Tensor) or result.dtype not in _SMALL_INTEGERS:
        return
    if not readable(result) or not all(readable(t) for t, _, _ in call.inputs):
        return
    if call.op.endswith("_") or call.op in ("iadd", "isub", "imul"):
        if call.before is None:
            return
        name = {"iadd": "add", "isub": "sub", "imul": "mul"}.get(call.op, call.op.rstrip("_"))
        operands: list[Any] = [call.before, *call.args[1:]]
    else:
        name, operands = call.op, list(call.args)
    function = getattr(torch, {"rsub": "rsub", "radd": "add", "rmul": "mul"}.get(name, name), None)
    if function is None:
        return
    wide = function(*(v.long() if isinstance(v, torch.Tensor) else v for v in operands), **call.kwargs)
    if wide.is_floating_point() or wide.shape != result.shape:
        return
    wrong = wide != result.long()
    if not bool(wrong.any()):
        return
    at = int(wrong.flatten().nonzero()[0])
    evidence = {
        "op": call.op.rstrip("_"), "dtype": dtype_of(rows[0].state) if rows else str(result.dtype).removeprefix("torch."),
        "true": int(wide.flatten()[at]), "got": int(result.flatten()[at]), "elements": int(wrong.sum()), "of": result.numel(),
    }  # fmt: skip
    origin = call.states[0].first(lambda s: all(p.dtype is not s.dtype for p in s.parents)) if call.states else None
    sites = _sites((call.line, "wraps here", "", evidence["true"], evidence["got"]))
    if origin and origin.line and origin.line != call.line:
        sites += (Site(origin.line, "dtype from here", origin.label, after=evidence["dtype"]),)
    yield Note("integer wrapped", call.line, evidence, sites)


def cast_wrapped(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """A conversion to small integers whose values do not fit, or to half precision that gave infinity."""
    if call.op not in _CASTS or not isinstance(result, torch.Tensor) or not call.inputs or not readable(result):
        return
    source = call.inputs[0][0]
    if source.dtype is result.dtype or source.dtype.is_complex or not readable(source) or source.shape != result.shape:
        return
    if result.dtype in (*_SMALL_INTEGERS, torch.int32):
        limits = torch.iinfo(result.dtype)
        numbers = source.double()
        beyond = (numbers < limits.min) | (numbers > limits.max)
        if bool(beyond.any()):
            at = int(beyond.flatten().nonzero()[0])
            evidence = {
                "dtype": str(result.dtype).removeprefix("torch."), "low": limits.min, "high": limits.max,
                "value": float(numbers.flatten()[at]), "got": int(result.flatten()[at]), "elements": int(beyond.sum()),
            }  # fmt: skip
            yield Note(
                "cast out of range",
                call.line,
                evidence,
                _sites((call.line, "converted here", "", evidence["value"], evidence["got"])),
            )


def rounded(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """Whole numbers that a float format cannot hold."""
    if (
        call.op not in _CASTS
        or not isinstance(result, torch.Tensor)
        or not call.inputs
        or not result.is_floating_point()
    ):
        return
    source = call.inputs[0][0]
    if source.dtype not in (torch.int64, torch.int32, torch.int16) or not readable(source) or not readable(result):
        return
    other = (result.double() != source.double()) & result.isfinite()
    if source.shape == result.shape and bool(other.any()):
        at = int(other.flatten().nonzero()[0])
        evidence = {
            "value": int(source.flatten()[at]), "got": int(result.flatten()[at]), "elements": int(other.sum()), "of": result.numel(),
            "dtype": str(result.dtype).removeprefix("torch."), "holds_to": 2 ** _significant_bits(result.dtype),
        }  # fmt: skip
        yield Note(
            "integer rounded",
            call.line,
            evidence,
            _sites((call.line, "rounded here", "", evidence["value"], evidence["got"])),
        )


def overflowed(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """float16 that came out infinite from finite inputs."""
    if not isinstance(result, torch.Tensor) or result.dtype is not torch.float16 or not readable(result):
        return
    if call.op not in _GROWS | _CASTS or not bool(result.isinf().any()):
        return
    if not all(readable(t) and bool(t.isfinite().all()) for t, _, _ in call.inputs if t is not result):
        return
    if call.before is not None and not bool(call.before.isfinite().all()):
        return
    scalars = [v for v in call.args if isinstance(v, float) and v in (float("inf"), float("-inf"))]
    if scalars:
        return
    evidence = {"op": call.op, "elements": int(result.isinf().sum()), "of": result.numel(), "largest": 65504.0}
    origin = next((s for s in call.states if s.dtype is torch.float16), None)
    born = origin.first(lambda s: all(p.dtype is not s.dtype for p in s.parents)) if origin else None
    sites = _sites((call.line, "infinite from here", "", None, "inf"))
    if born and born.line and born.line != call.line:
        sites += (Site(born.line, "float16 from here", born.label),)
    yield Note("overflow", call.line, evidence, sites)


def lost_addition(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """Nothing changed though what was added is not zero. Only for a running sum: in place, or under the name of the old one."""
    if not call.inputs:
        return
    target, addend = call.inputs[0][0], None
    if call.op in ADDS and call.before is not None and len(call.args) > 1:
        old, new, addend = call.before, target, call.args[1]
    elif call.op in _SUMS and isinstance(result, torch.Tensor) and len(call.args) > 1 and readable(target):
        old, new, addend = target, result, call.args[1]
    else:
        return
    if not old.is_floating_point() or not isinstance(new, torch.Tensor) or new.dtype is not old.dtype:
        return
    scale = call.kwargs.get("alpha", 1)
    if isinstance(addend, torch.Tensor):
        if not readable(addend) or not bool((addend != 0).all()) or not bool(addend.isfinite().all()):
            return
        if not call.direct and old.dtype not in (torch.bfloat16, torch.float16):
            return
        added = float(addend.flatten()[0]) * scale
    elif isinstance(addend, (int, float)) and call.direct:
        added = float(addend * scale)
        if old.dtype in (torch.float32, torch.float64) and abs(added) <= _EPSILON:  # there to keep a division finite
            return
    else:
        return
    if not added or new.shape != old.shape or not bool(old.isfinite().all()) or not torch.equal(new, old):
        return
    evidence = {
        "op": call.op, "dtype": str(old.dtype).removeprefix("torch."), "value": float(old.flatten()[0]),
        "added": added,
        "bits": _significant_bits(old.dtype), "in_place": call.op in ADDS,
        "target": call.states[0].name,
    }  # fmt: skip
    born = call.states[0].first(lambda s: all(p.dtype is not s.dtype for p in s.parents))
    sites = _sites((call.line, "lost here", call.states[0].name, evidence["value"], evidence["value"]))
    if born and born.line and born.line != call.line:
        sites += (Site(born.line, "dtype from here", born.label, after=evidence["dtype"]),)
    yield Note("lost addition", call.line, evidence, sites)


def cut_fraction(call: Call, rows: list[Row], result: Any) -> Iterator[Note]:
    """A fraction written into whole numbers by index, by ``copy_`` or by ``fill_``."""
    target = call.inputs[0][0] if call.inputs else None
    if call.op not in ("setitem", "fill_", "masked_fill_", "index_fill_", "copy_") or target is None:
        return
    if target.is_floating_point() or target.is_complex() or target.dtype is torch.bool:
        return
    value = call.args[-1] if len(call.args) > 1 else call.kwargs.get("value")
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point() or not readable(value):
            return
        fractions = value[value != value.trunc()]
        if not fractions.numel():
            return
        value, count = float(fractions.flatten()[0]), fractions.numel()
    elif isinstance(value, float) and value == value and value != int(value):
        count = 1
    else:
        return
    state = call.states[0]
    evidence = {
        "value": float(value),
        "got": int(value),
        "elements": count,
        "dtype": dtype_of(state),
        "target": state.label,
    }
    born = state.first(lambda s: all(p.dtype is not s.dtype for p in s.parents))
    sites = _sites((call.line, "cut here", state.label, evidence["value"], evidence["got"]))
    if born and born.line and born.line != call.line:
        sites += (Site(born.line, "dtype from here", born.label, after=evidence["dtype"]),)
    yield Note("fraction cut", call.line, evidence, sites)


def _significant_bits(dtype: torch.dtype) -> int:
    return 1 - int(torch.tensor(torch.finfo(dtype).eps, dtype=torch.float64).log2())


def _sites(*places: tuple[int | None, str, str, Any, Any]) -> tuple[Site, ...]:
    return tuple(Site(line, role, tensor, before, after) for line, role, tensor, before, after in places if line)
