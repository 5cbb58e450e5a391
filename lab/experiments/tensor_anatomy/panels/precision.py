"""Rounding against float64: the order of a sum, a counter that stops, and a matrix product with two ways to add up.

A format with p significant bits rounds each result to within 2^-p of it. Adding n numbers one after the other lets the
errors add up; adding in a tree, or in a wider format, keeps them small.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch

from lab.contract import Report
from lab.experiments.tensor_anatomy.schema import Params, Result
from lab.records.tensors import Errors, Format

SUMS = ("float32", "float16", "bfloat16")
ORDERS = ("torch", "sequential", "sorted", "chunks")
INNER = (16, 64, 256, 1024, 4096, 16_384)
MOST_OWN = 4096
"""K up to which the loop in the narrow format is run beside the others."""
SIDE = 32
COUNTED = ("bfloat16", "float16", "float32")
Rows = list[tuple[str, str, str, int, float, float, float]]


def measure(params: Params, report: Report) -> Result:
    """Sums of ``count`` numbers in all orders, products for several K, counters."""
    rows = sum_rows(params)
    report(0.3, "multiplying", None)
    rows += product_rows(params, report)
    chosen = next(row[4] for row in rows if row[:4] == ("sum", "float32", params.order, params.count))
    if params.accumulate == "own":
        chosen = next(row[4] for row in rows if row[:4] == ("product", "bfloat16", "own", params.inner))
    return Result(
        view="precision",
        errors=Errors(*(tuple(column) for column in zip(*rows, strict=True))),
        chosen_error=chosen,
        formats=formats(params.device),
        device=params.device,
    )


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sum_rows(params: Params) -> Rows:
    """Uniform numbers, added in four orders; for the 16-bit formats in torch's own."""
    x = torch.rand(params.count, generator=_generator(params.seed)).to(params.device)
    rows = [_row("sum", "float32", order, params.count, add(x), exact(x)) for order, add in _ORDERS.items()]
    for dtype in SUMS[1:]:
        narrow = x.to(getattr(torch, dtype))
        rows.append(_row("sum", dtype, "torch", params.count, narrow.sum().item(), exact(narrow)))
    return rows


def exact(x: torch.Tensor) -> float:
    """The sum of these very numbers in float64."""
    return x.double().sum().item()


def _row(
    what: str, dtype: str, how: str, size: int, value: float, true: float
) -> tuple[str, str, str, int, float, float, float]:
    return what, dtype, how, size, abs(value - true) / abs(true), value, true


def sequential(x: torch.Tensor) -> float:
    """One after the other in the format of x."""
    import numpy

    return float(numpy.add.accumulate(x.cpu().numpy())[-1])


_ORDERS: dict[str, Callable[[torch.Tensor], float]] = {
    "torch": lambda x: x.sum().item(),
    "sequential": sequential,
    "sorted": lambda x: sequential(x.sort().values),
    "chunks": lambda x: sequential(torch.stack([part.sum() for part in x.chunk(64)])),
}


def product_rows(params: Params, report: Report) -> Rows:
    """(32, K) @ (K, 32): the kernels, and a loop that adds up in the format of the matrices."""
    rows: Rows = []
    sizes = sorted({*(k for k in INNER if k <= max(params.inner, 1024)), params.inner})
    for number, inner in enumerate(sizes):
        generator = _generator(params.seed)
        a = torch.randn(SIDE, inner, generator=generator).to(params.device)
        b = torch.randn(inner, SIDE, generator=generator).to(params.device)
        for dtype in ("float32", "bfloat16", "float16"):
            left, right = a.to(getattr(torch, dtype)), b.to(getattr(torch, dtype))
            true = left.double() @ right.double()
            rows.append(("product", dtype, "float32", inner, relative(left @ right, true), 0.0, 0.0))
            wanted = dtype == "bfloat16" and (inner <= 1024 or (inner == params.inner and params.accumulate == "own"))
            if wanted:
                rows.append(("product", dtype, "own", inner, relative(narrow_product(left, right), true), 0.0, 0.0))
        report(0.3 + 0.6 * (number + 1) / len(sizes), f"K = {inner:,}")
    return rows


def narrow_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Every product and every sum rounded to the format of the matrices."""
    total = torch.zeros(left.shape[0], right.shape[1], dtype=left.dtype, device=left.device)
    for k in range(left.shape[1]):
        total = total + left[:, k : k + 1] * right[k : k + 1, :]
    return total


def relative(got: torch.Tensor, true: torch.Tensor) -> float:
    """Frobenius norm of the difference over that of the truth."""
    return ((got.double() - true).norm() / true.norm()).item()


def formats(device: str) -> tuple[Format, ...]:
    """What each format can hold, and where a counter in it stops."""
    found = []
    for dtype in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        kind = getattr(torch, dtype)
        info = torch.finfo(kind)
        bits = 1 - round(torch.tensor(info.eps, dtype=torch.float64).log2().item())
        found.append(
            Format(dtype, info.bits // 8, bits, info.max, info.smallest_normal, info.eps, counts_to(kind, bits))
        )
    return tuple(found)


def counts_to(dtype: torch.dtype, bits: int) -> float:
    """The first power of two from which adding 1 changes nothing, found by adding."""
    powers = [2.0**n for n in range(1, bits + 2)]
    for below, power in pairwise(powers):
        value = torch.tensor(power, dtype=dtype)
        if not torch.isfinite(value.double()):
            return below
        if (value.double() + 1).to(dtype).double().item() == value.double().item():
            return power
    return powers[-1]


def counted_by_loop(dtype: torch.dtype, most: int) -> float:
    """A counter that adds 1 until it stands still; the long way."""
    one, count = torch.ones((), dtype=dtype), torch.zeros((), dtype=dtype)
    for _ in range(most):
        before = count.item()
        count = count + one
        if count.item() == before:
            break
    return count.item()
