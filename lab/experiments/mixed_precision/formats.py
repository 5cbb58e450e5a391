"""Number formats measured by rounding, gradients by exponent, and what a format's window leaves out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from lab.records.precision import Format, FormatShare, Histogram, LayerLoss
from lab.workloads.deep_classifier import a_batch, deep_classifier

TYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp8 e4m3": torch.float8_e4m3fn,
    "fp8 e5m2": torch.float8_e5m2,
}  # fmt: skip
REAL_SCALES = (0, 10, 16, 20, 24)
"""Powers of two with which a real backward pass is run."""
SCALES = tuple(range(0, 31))


def measured_formats() -> tuple[Format, ...]:
    """Every format by its answers to rounding; constants are not read from a table."""
    return tuple(_format(name, dtype) for name, dtype in TYPES.items())


def _format(name: str, dtype: torch.dtype) -> Format:
    powers = range(-160, 129)
    held = [p for p in powers if _rounded(2.0**p, dtype) == 2.0**p]
    exact = [
        p for p in held if p < 0 and _rounded(2.0**p * (1 + _epsilon(dtype)), dtype) == 2.0**p * (1 + _epsilon(dtype))
    ]
    largest = float(torch.finfo(dtype).max)
    beyond = _rounded(largest * 2, dtype)
    whole = next((2**p + 1 for p in range(1, 26) if _rounded(float(2**p + 1), dtype) != 2**p + 1), 0)
    return Format(
        name=name,
        largest=largest,
        smallest_normal=2.0 ** min(exact),
        smallest=2.0 ** min(held),
        lost_integer=whole,
        overflow="nan" if math.isnan(beyond) else "inf" if math.isinf(beyond) else f"{beyond:g}",
    )


def _epsilon(dtype: torch.dtype) -> float:
    """Distance from 1 to the next number."""
    digits = next(k for k in range(1, 60) if _rounded(1 + 2.0**-k, dtype) == 1.0 or k == 59)
    return 2.0 ** -(digits - 1)


def _rounded(value: float, dtype: torch.dtype) -> float:
    """Through float64 and, for eight bits, float32: none of the values that are asked for is between two of those."""
    exact = torch.tensor(value, dtype=torch.float64)
    return float((exact.float() if dtype.itemsize == 1 else exact).to(dtype).double())


def gradients_of(depth: int, activation: str) -> tuple[nn.Sequential, list[tuple[str, torch.Tensor]]]:
    """The network after a backward pass in float32, and its weight and bias gradients by layer."""
    model = deep_classifier(depth, activation)
    inputs, classes = a_batch()
    F.cross_entropy(model(inputs), classes).backward()
    return model, layer_gradients(model)


def layer_gradients(model: nn.Sequential) -> list[tuple[str, torch.Tensor]]:
    """(name, all gradients of the layer in one vector), from input to output."""
    layers = [m for m in model if isinstance(m, nn.Linear)]
    return [
        (f"layer {at}" if at < len(layers) else "head", torch.cat([_gradient(p).flatten() for p in layer.parameters()]))
        for at, layer in enumerate(layers, 1)
    ]


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad.detach()


def exponents(layers: Sequence[tuple[str, torch.Tensor]]) -> tuple[Histogram, int, int]:
    """(histogram, gradients, zeros among them): floor of log2 of the absolute value, layer by layer."""
    found: list[tuple[int, int, str]] = []
    total = zeros = 0
    for name, gradients in layers:
        values = gradients[gradients != 0].abs().double()
        total, zeros = total + gradients.numel(), zeros + gradients.numel() - values.numel()
        kinds, counts = torch.unique(torch.frexp(values)[1] - 1, return_counts=True)
        found += [(int(e), int(n), name) for e, n in zip(kinds.tolist(), counts.tolist(), strict=True)]
    columns = list(zip(*found, strict=True)) if found else [(), (), ()]
    return Histogram(tuple(columns[0]), tuple(columns[1]), tuple(columns[2])), total, zeros


def lost(values: torch.Tensor, name: str, scale: float) -> tuple[float, float, float]:
    """(zero, subnormal, overflow) shares of the nonzero ``values`` when they are scaled and stored in the format."""
    dtype = TYPES[name]
    scaled = values[values != 0].double() * scale
    if not scaled.numel():
        return 0.0, 0.0, 0.0
    limit = torch.finfo(dtype)
    if (
        dtype.itemsize == 1
    ):  # whether eight bits saturate differs by release: beyond the largest number counts as overflow
        over = scaled.abs() > limit.max
        stored = scaled.clamp(-limit.max, limit.max).float().to(dtype).double()
    else:
        stored = scaled.to(dtype).double()
        over = stored.isinf()
    small = (stored != 0) & (stored.abs() < limit.smallest_normal)
    return tuple(float(part.double().mean()) for part in (stored == 0, small, over))  # type: ignore[return-value]


def real_backward(depth: int, activation: str, dtype: str, scale: float) -> list[tuple[str, torch.Tensor]]:
    """Gradients of a backward pass in low precision with a scaled loss; still scaled."""
    model = deep_classifier(depth, activation)
    inputs, classes = a_batch()
    with torch.autocast("cpu", dtype=TYPES[dtype], enabled=dtype != "fp32"):
        loss = F.cross_entropy(model(inputs), classes)
    (loss * scale).backward()
    return layer_gradients(model)


def zero_share(layers: Sequence[tuple[str, torch.Tensor]], full: Sequence[tuple[str, torch.Tensor]]) -> float:
    """Share that is 0, of the gradients that are not 0 in float32."""
    low, high = torch.cat([g for _, g in layers]), torch.cat([g for _, g in full])
    return float((low[high != 0] == 0).double().mean())


def layer_losses(layers: Sequence[tuple[str, torch.Tensor]], full: Sequence[tuple[str, torch.Tensor]], dtype: str, scale: float) -> tuple[LayerLoss, ...]:  # fmt: skip
    """What each layer has left after a real backward pass."""
    return tuple(
        LayerLoss(
            name=name,
            dtype=dtype,
            scale=scale,
            zero=float((low == 0).double().mean()),
            zero_fp32=float((high == 0).double().mean()),
            rms=float((low.double() / scale).square().mean().sqrt()),
            infinite=not bool(low.isfinite().all()),
        )
        for (name, low), (_, high) in zip(layers, full, strict=True)
    )


def shares_of(values: torch.Tensor, measured: dict[tuple[str, float], float]) -> tuple[FormatShare, ...]:
    """Every format with every scale."""
    return tuple(
        FormatShare(name, 2.0**power, *lost(values, name, 2.0**power), measured.get((name, 2.0**power)))
        for name in TYPES
        for power in SCALES
    )
