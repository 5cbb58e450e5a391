"""Arithmetic and memory traffic of one operation, from the shapes that the profiler recorded.

FLOPs count a multiplication and an addition as two: a product (m, k) x (k, n) has 2mkn. They are counted for products,
convolutions, attention and the oneDNN LSTM, where nearly all arithmetic of a network is; each at one place of the nesting.
Causal attention is counted in full, as PyTorch's own counter does.

Moved bytes are the least that memory must carry: every input read once, every output written once. Caches can make the
truth larger, never smaller. None stands for an operation whose traffic the shapes do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

Shape = Sequence[int]

ELEMENT_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "int": 4, "short int": 2,
    "signed char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip
"""Kineto's name of a dtype -> size of an element."""


def flops(name: str, shapes: Sequence[Any], arguments: Sequence[Any]) -> int | None:
    """Floating-point operations, None where they are not counted."""
    count = _FLOPS.get(name)
    return count(shapes, arguments) if count and _are_known(shapes) else None


def moved_bytes(name: str, shapes: Sequence[Any], dtypes: Sequence[str]) -> int | None:
    """Bytes that memory must carry at least, None where the shapes do not tell."""
    output = _OUTPUTS.get(name)
    if output is None or not _are_known(shapes):
        return None
    inputs = [
        (shape, ELEMENT_BYTES[dtype]) for shape, dtype in zip(shapes, dtypes, strict=False) if dtype in ELEMENT_BYTES
    ]
    if not inputs:
        return None
    elements, element_bytes = output([shape for shape, _ in inputs]), inputs[0][1]
    read = inputs[1:] if name in _OVERWRITES else inputs
    return sum(math.prod(shape) * size for shape, size in read) + elements * element_bytes


def _are_known(shapes: Sequence[Any]) -> bool:
    return bool(shapes) and all(isinstance(n, int) for shape in shapes for n in shape)


def _mm(shapes: Sequence[Shape], arguments: Sequence[Any]) -> int:
    (m, k), (_, n) = shapes[0], shapes[1]
    return 2 * m * k * n


def _bmm(shapes: Sequence[Shape], arguments: Sequence[Any]) -> int:
    (b, m, k), (_, _, n) = shapes[0], shapes[1]
    return 2 * b * m * k * n


def _convolution(shapes: Sequence[Shape], arguments: Sequence[Any]) -> int:
    """Every output element is a dot product of length (input channels of its group) x (kernel)."""
    inputs, weight = shapes[0], shapes[1]
    stride, padding, dilation, transposed = arguments[3:7]
    if transposed:  # every input element meets every weight of its channel
        return 2 * math.prod(inputs) * math.prod(weight[1:])
    output = [
        (size + 2 * _at(padding, i) - _at(dilation, i) * (kernel - 1) - 1) // _at(stride, i) + 1
        for i, (size, kernel) in enumerate(zip(inputs[2:], weight[2:], strict=True))
    ]
    return 2 * inputs[0] * math.prod(output) * math.prod(weight)


def _convolution_backward(shapes: Sequence[Shape], arguments: Sequence[Any]) -> int:
    """Gradients of input and weight, where asked for, cost as much as the forward each."""
    gradient, inputs, weight = shapes[0], shapes[1], shapes[2]
    transposed, wanted = arguments[7], arguments[10]
    meeting = inputs if transposed else gradient
    forward = 2 * meeting[0] * math.prod(meeting[2:]) * math.prod(weight)
    return forward * sum(wanted[:2])


def _at(values: Sequence[int], index: int) -> int:
    return values[index] if len(values) > 1 else values[0]


def _lstm(shapes: Sequence[Shape], arguments: Sequence[Any]) -> int:
    """(T, B, I) with weights (4H, I) and (4H, H)."""
    length, batch, _ = shapes[0]
    return 2 * length * batch * (math.prod(shapes[1]) + math.prod(shapes[2]))


def _attention(first: int) -> Callable[[Sequence[Shape], Sequence[Any]], int]:
    return lambda shapes, _: sdpa_flop_count(*shapes[first : first + 3])


def _attention_backward(shapes: Sequence[Shape], arguments: Sequence[Any]) -> int:
    return sdpa_backward_flop_count(*shapes[:4])


_FLOPS: dict[str, Callable[[Sequence[Any], Sequence[Any]], int]] = {
    "aten::mm": _mm,
    "aten::addmm": lambda shapes, arguments: _mm(shapes[1:], arguments),
    "aten::_addmm_activation": lambda shapes, arguments: _mm(shapes[1:], arguments),
    "aten::bmm": _bmm,
    "aten::baddbmm": lambda shapes, arguments: _bmm(shapes[1:], arguments),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::mkldnn_rnn_layer": _lstm,
    "aten::mkldnn_rnn_layer_backward": lambda shapes, arguments: 2 * _lstm(shapes, arguments),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(0),
    "aten::_scaled_dot_product_flash_attention": _attention(0),
    "aten::_scaled_dot_product_efficient_attention": _attention(0),
    "aten::_scaled_dot_product_cudnn_attention": _attention(0),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten::_scaled_dot_product_flash_attention_backward": _attention_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention_backward,
}


def _broadcast(shapes: Sequence[Shape]) -> int:
    """Elements of the broadcast of all shapes."""
    sizes: list[int] = []
    for shape in shapes:
        for i, n in enumerate(reversed(shape)):
            if i == len(sizes):
                sizes.append(n)
            elif sizes[i] == 1:
                sizes[i] = n
    return math.prod(sizes)


def _first(shapes: Sequence[Shape]) -> int:
    return math.prod(shapes[0])


def _product(shapes: Sequence[Shape]) -> int:
    left, right = shapes[-2], shapes[-1]
    return math.prod(left[:-1]) * right[-1]


_ELEMENTWISE = [
    "add",
    "sub",
    "mul",
    "div",
    "exp",
    "sqrt",
    "sigmoid",
    "tanh",
    "relu",
    "gelu",
    "threshold_backward",
    "sigmoid_backward",
    "tanh_backward",
    "gelu_backward",
    "addcmul",
    "addcdiv",
    "pow",
    "neg",
    "clamp",
    "clamp_min",
    "where",
    "rsub",
    "log",
    "silu",
    "silu_backward",
    "add_",
    "sub_",
    "mul_",
    "div_",
    "sqrt_",
    "exp_",
    "addcmul_",
    "addcdiv_",
    "lerp_",
    "relu_",
    "clamp_",
    "neg_",
]
_OUTPUTS: dict[str, Callable[[Sequence[Shape]], int]] = {
    **{f"aten::{name}": _broadcast for name in _ELEMENTWISE},
    **{f"aten::{name}": _first for name in ("copy_", "fill_", "zero_", "_softmax", "_log_softmax")},
    **{f"aten::{name}": _product for name in ("mm", "addmm", "bmm", "baddbmm")},
}
"""Operation -> elements of its output, where the shapes of its inputs tell."""
WITH_TRAFFIC = frozenset(_OUTPUTS)
"""Operations whose traffic the shapes and dtypes tell."""
WITH_COST = WITH_TRAFFIC | frozenset(_FLOPS)
"""Operations of which anything is counted."""
WITH_ARGUMENTS = ("aten::convolution", "aten::convolution_backward")
"""Operations whose arithmetic depends on more than shapes."""
_OVERWRITES = ("aten::copy_", "aten::fill_", "aten::zero_")
"""Operations that do not read their first input."""
