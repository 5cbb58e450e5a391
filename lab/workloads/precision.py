"""Mixed precision by the name of a knob: what autocast computes in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

AUTOCAST_DTYPES = {"bf16_autocast": torch.bfloat16, "fp16_autocast": torch.float16}
"""The other precisions, ``fp32`` and ``bf16``, use no autocast."""


def autocast(device: str, precision: str) -> AbstractContextManager[Any]:
    """Around a forward; nothing for a precision without autocast."""
    dtype = AUTOCAST_DTYPES.get(precision)
    return torch.autocast(device, dtype) if dtype else nullcontext()


def autocast_source(device: str, precision: str, nothing: str = "nullcontext()") -> str:
    """The same call as text. ``device`` is an expression."""
    dtype = AUTOCAST_DTYPES.get(precision)
    return f"torch.autocast({device}, {dtype})" if dtype else nothing
