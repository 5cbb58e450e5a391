"""Tensors and Python values as plain data: numbers, text, lists and dicts of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from lab import torch_private
from lab.instruments.describing.names import class_module, class_name
from lab.records.graph import Plain

SMALL = 64
"""A tensor with at most so many elements is shown whole."""
_DEPTH = 8
_ITEMS, _ITEMS_IN_ALL = 1000, 20_000
_TEXT = 4000
_ITERATE: dict[type, Callable[[Any], Iterator[Any]]] = {
    list: list.__iter__,
    tuple: tuple.__iter__,
    set: set.__iter__,
    frozenset: frozenset.__iter__,
}


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether reading the elements is possible and invisible: an ordinary strided tensor with memory behind it."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_nested
        and not tensor.is_quantized
        and not torch_private.is_wrapped(tensor)
        and not torch_private.has_dispatch_mode()
    )


def tensor_value(tensor: torch.Tensor | None, *, largest: int = SMALL) -> Plain:
    """A nested list up to ``largest`` elements, else a summary with shape, dtype, min, max and 2-norm."""
    if tensor is None:
        return None
    if tensor.layout is not torch.strided and is_readable_sparse(tensor):
        tensor = tensor.to_dense()
    if not is_readable(tensor):
        return {"shape": _shape_data(tensor), "dtype": dtype_name(tensor.dtype)}
    with torch.no_grad():
        return _json_numbers(tensor.tolist()) if tensor.numel() <= largest else _summary(tensor.detach())


def is_readable_sparse(tensor: torch.Tensor) -> bool:
    """Whether a small sparse tensor can be shown as the dense one that it stands for."""
    known = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_sparse
    return known and tensor.numel() <= SMALL and not torch_private.has_dispatch_mode()


def _summary(tensor: torch.Tensor) -> Plain:
    whole = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    numbers = whole.to(torch.float64)
    return {
        "shape": _shape_data(tensor),
        "dtype": dtype_name(tensor.dtype),
        "min": numbers.min().item(),
        "max": numbers.max().item(),
        "norm": numbers.norm().item(),
    }


def shape_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The shape; None where it is not a list of numbers: nested and symbolic shapes, lazy parameters before their first call."""
    if tensor.is_nested or is_lazy(tensor):
        return None
    return known_shape(tensor.shape)


def known_shape(shape: Iterable[Any]) -> tuple[int, ...] | None:
    """``shape`` as plain numbers, None when one of them is symbolic."""
    sizes = tuple(shape)
    return sizes if all(type(size) is int for size in sizes) else None


def _shape_data(tensor: torch.Tensor) -> Plain:
    shape = shape_of(tensor)
    return list(shape) if shape is not None else "nested" if tensor.is_nested else "not known yet"


def dtype_name(dtype: torch.dtype) -> str:
    """``float32``, without the prefix."""
    return str(dtype).removeprefix("torch.")


def plain_value(value: Any, depth: int = _DEPTH) -> Plain:
    """``value`` of a program's variable as plain data; ``<Class>`` for what has none.

    Runs no code of the program: its classes may override anything that this would use.
    """
    return _Reading().read(value, depth)


class _Reading:
    """One value being read. ``left`` bounds the items of all its containers together: one list may hold another many times."""

    def __init__(self) -> None:
        self.left = _ITEMS_IN_ALL

    def read(self, value: Any, depth: int) -> Plain:
        kind = type(value)  # isinstance would ask the object for its __class__
        if value is None or kind is bool:
            return value
        if issubclass(kind, str):
            return str.__getitem__(value, slice(_TEXT))
        if issubclass(kind, int):
            return _integer(int.__pos__(value))
        if issubclass(kind, float):
            return float.__pos__(value)
        if issubclass(kind, complex):
            return str(complex.__pos__(value))
        if issubclass(kind, torch.Tensor):
            return tensor_value(value, largest=_ITEMS)
        if depth and issubclass(kind, tuple(_ITERATE)):
            iterate = next(iterate for base, iterate in _ITERATE.items() if issubclass(kind, base))
            return [self.read(v, depth - 1) for v in self._some(iterate(value))]
        if depth and issubclass(kind, dict):
            return {_key(k): self.read(v, depth - 1) for k, v in self._some(dict.items(value))}
        if kind in (torch.dtype, torch.device):
            return str(value)
        if class_module(kind) == "numpy" and hasattr(value, "tolist") and value.size <= _ITEMS:
            return self.read(value.tolist(), depth)
        return f"<{class_name(kind)}>"

    def _some(self, items: Iterable[Any]) -> list[Any]:
        some = list(islice(items, min(_ITEMS, self.left)))
        self.left -= len(some)
        return some


def _key(key: Any) -> str:
    return str(_Reading().read(key, 2))[:200]


def _integer(value: int) -> Plain:
    if abs(value) < 1 << 63:
        return value
    return hex(value)[:40] + "…" if value.bit_length() > 256 else str(value)


def _json_numbers(value: Any) -> Plain:
    if isinstance(value, list):
        return [_json_numbers(v) for v in value]
    return str(value) if isinstance(value, complex) else value


def is_finite(value: Plain) -> bool:
    """Whether every number in ``value`` is finite."""
    if isinstance(value, list):
        return all(is_finite(v) for v in value)
    return not isinstance(value, float) or math.isfinite(value)


def quiet_grad(tensor: torch.Tensor) -> torch.Tensor | None:
    """``tensor.grad`` without the warning that reading it from a non-leaf gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensor.grad
