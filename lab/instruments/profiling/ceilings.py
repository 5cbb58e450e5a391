"""What this device can do at best, measured: arithmetic by a large matmul, memory traffic by a large copy."""

from __future__ import annotations

from dataclasses import replace

import torch

from lab.instruments.profiling.step_clock import timed
from lab.records.profiling import Ceilings

_MATMUL = {"cpu": 768, "cuda": 8192}
"""Side of the matrices: large enough that the traffic does not count."""
_COPY_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
"""Larger than the caches."""
_TRIES = 3


def measure_ceilings(device: str, dtype: torch.dtype) -> Ceilings:
    """Takes some 0.2 s on a CPU."""
    side, size = _MATMUL[device], _COPY_BYTES[device]
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    matmul_s = min(timed(lambda: torch.mm(a, b), device) for _ in range(_TRIES))
    copy_s = min(timed(lambda: target.copy_(source), device) for _ in range(_TRIES))
    return Ceilings(
        flops_per_s=2 * side**3 / matmul_s,
        bytes_per_s=2 * size / copy_s,
        dtype=str(dtype).removeprefix("torch."),
        threads=torch.get_num_threads() if device == "cpu" else None,
        matmul_side=side,
        copy_bytes=size,
    )


def best_of(one: Ceilings, other: Ceilings) -> Ceilings:
    """A ceiling is what was reached at least once."""
    return replace(
        one,
        flops_per_s=max(one.flops_per_s, other.flops_per_s),
        bytes_per_s=max(one.bytes_per_s, other.bytes_per_s),
    )
