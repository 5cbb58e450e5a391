"""Tensors and Python values as plain data: numbers, text, lists and dicts of them."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch

from lab.instruments import torch_private
from lab.instruments.records import Plain

SMALL = 64
"""A tensor with at most so many elements is shown whole."""
_DEPTH = 8
_ITEMS = 1000
_TEXT = 4000


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether reading the elements is possible and invisible: an ordinary strided tensor with memory behind it."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not torch_private.is_wrapped(tensor)
        and not torch_private.has_dispatch_mode()
    )


def small_tensor(tensor: torch.Tensor | None) -> Plain:
    """A nested list (a number for a scalar) while the tensor is small and readable, else None. Costs microseconds."""
    if tensor is None or tensor.numel() > SMALL or not is_readable(tensor):
        return None
    return _json_numbers(tensor.tolist())


def tensor_value(tensor: torch.Tensor | None, *, largest: int = SMALL) -> Plain:
    """A nested list up to ``largest`` elements, else a summary with shape, dtype, min, max and 2-norm."""
    if tensor is None:
        return None
    if tensor.layout is not torch.strided and is_readable_sparse(tensor):
        tensor = tensor.to_dense()
    if not is_readable(tensor):
        return {"shape": _sizes(tensor), "dtype": dtype_name(tensor.dtype)}
    with torch.no_grad():
        return _json_numbers(tensor.tolist()) if tensor.numel() <= largest else _summary(tensor.detach())


def is_readable_sparse(tensor: torch.Tensor) -> bool:
    """Whether a small sparse tensor can be shown as the dense one that it stands for."""
    return type(tensor) is torch.Tensor and tensor.is_sparse and tensor.numel() <= SMALL


def _summary(tensor: torch.Tensor) -> Plain:
    whole = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    numbers = whole.to(torch.float64)
    return {
        "shape": _sizes(tensor),
        "dtype": dtype_name(tensor.dtype),
        "min": numbers.min().item(),
        "max": numbers.max().item(),
        "norm": numbers.norm().item(),
    }


def _sizes(tensor: torch.Tensor) -> Plain:
    return "nested" if tensor.is_nested else list(tensor.shape)


def dtype_name(dtype: torch.dtype) -> str:
    """``float32``, without the prefix."""
    return str(dtype).removeprefix("torch.")


def plain_value(value: Any, depth: int = _DEPTH) -> Plain:
    """``value`` of a program's variable as plain data; ``<Class>`` for what has none."""
    if value is None or isinstance(value, (bool, str)):
        return value[:_TEXT] if isinstance(value, str) else value
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 63 else _long_integer(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return str(complex(value))
    if isinstance(value, torch.Tensor):
        return tensor_value(value, largest=_ITEMS)
    if isinstance(value, (torch.Size, list, tuple, set, frozenset)) and depth:
        return [plain_value(v, depth - 1) for v in list(value)[:_ITEMS]]
    if isinstance(value, dict) and depth:
        return {str(k)[:200]: plain_value(v, depth - 1) for k, v in list(value.items())[:_ITEMS]}
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    to_list = getattr(value, "tolist", None) if type(value).__module__ == "numpy" else None
    if to_list is not None and getattr(value, "size", 0) <= _ITEMS:
        return plain_value(to_list(), depth)
    return f"<{type(value).__name__}>"


def _long_integer(value: int) -> str:
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
