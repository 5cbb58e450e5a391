"""The dtype of a + b for every pair, measured by adding; and the three tiers.

Only tensors with dimensions decide among themselves; a 0-dim tensor, and below it a Python number, matters only when its
category (bool < integer < float < complex) is higher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lab.contract import Report
from lab.experiments.tensor_anatomy.schema import DTYPES, Params, Result
from lab.records.tensors import Pair, Tier


def measure(params: Params, report: Report) -> Result:
    """All pairs once a run: a tenth of a second."""
    pairs = tuple(pair(a, b, params.device) for a in DTYPES for b in DTYPES)
    return Result(
        view="promotion",
        promotion=pairs,
        chosen_pair=(params.dtype_a, params.dtype_b),
        tiers=tiers(params.device),
        device=params.device,
    )


def pair(a: str, b: str, device: str) -> Pair:
    """a + b on two elements each, beside what torch and NumPy say they do."""
    left, right = dtype(a), dtype(b)
    result, reason = "", ""
    try:
        result = name(add(torch.ones(2, device=device).to(left), torch.ones(2, device=device).to(right)).dtype)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        reason = str(error).split("\n")[0][:200]
    return Pair(a, b, result, reason, _promised(left, right), _numpy(a, b))


def add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left + right


def dtype(text: str) -> torch.dtype:
    return getattr(torch, text)


def name(of: torch.dtype) -> str:
    return str(of).removeprefix("torch.")


def _promised(left: torch.dtype, right: torch.dtype) -> str:
    try:
        return name(torch.promote_types(left, right))
    except RuntimeError:
        return ""


def _numpy(a: str, b: str) -> str:
    import numpy

    known = {"bool": "bool_"}
    kinds = [getattr(numpy, known.get(text, text), None) for text in (a, b)]
    if None in kinds or "float8" in a + b or "bfloat16" in (a, b):
        return ""
    return str(numpy.result_type(*kinds))


_TIERS: tuple[tuple[str, Callable[[], Any], str], ...] = (
    ("ones(2, float32) + ones(2, float64)", lambda: torch.ones(2) + torch.ones(2, dtype=torch.float64), "two tensors with dimensions: the wider float"),
    ("ones(2, float32) + tensor(1., float64)", lambda: torch.ones(2) + torch.tensor(1.0, dtype=torch.float64), "a 0-dim tensor of the same category does not count"),
    ("ones(2, int64) / tensor(1., float64)", lambda: torch.ones(2, dtype=torch.int64) / torch.tensor(1.0, dtype=torch.float64), "of a higher category it does"),
    ("ones(2, int32) * 1.5", lambda: torch.ones(2, dtype=torch.int32) * 1.5, "a Python float raises the category to the default float"),
    ("ones(2, float16) * 1e6", lambda: torch.ones(2, dtype=torch.float16) * 1e6, "the number is a Python float, so the format stays, and its largest is 65504"),
    ("ones(2, uint8) * 300", lambda: torch.ones(2, dtype=torch.uint8) * 300, "the format stays, and 300 wraps modulo 256"),
    ("ones(2, int32) + ones(2, float16)", lambda: torch.ones(2, dtype=torch.int32) + torch.ones(2, dtype=torch.float16), "the float keeps its width; NumPy would take float64"),
    ("ones(2, float16) + ones(2, bfloat16)", lambda: torch.ones(2, dtype=torch.float16) + torch.ones(2, dtype=torch.bfloat16), "neither holds the other"),
    ("ones(2, 2) @ ones(2, 2, float64)", lambda: torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.float64), "matrix products do not promote"),
    ("ones(2, int32).add_(1.5)", lambda: torch.ones(2, dtype=torch.int32).add_(1.5), "an in-place result keeps the format of its target"),
    ("zeros(2, int64)[0] = 2.9", lambda: _assigned(), "assignment by index converts without a word"),
    ("ones(3, bool).sum()", lambda: torch.ones(3, dtype=torch.bool).sum(), "sums of small integers are int64"),
    ("ones(2, int64).mean()", lambda: torch.ones(2, dtype=torch.int64).mean(), "no format is chosen for you"),
    ("full((1, 200), 1, int8) @ full((200, 1), 1, int8)", lambda: torch.full((1, 200), 1, dtype=torch.int8) @ torch.full((200, 1), 1, dtype=torch.int8), "int8 stays int8, and 200 wraps"),
)  # fmt: skip


def _assigned() -> torch.Tensor:
    x = torch.zeros(2, dtype=torch.int64)
    x[0] = 2.9
    return x


def tiers(device: str) -> tuple[Tier, ...]:
    """Each expression, run."""
    found = []
    with torch.device(device):
        for text, run, why in _TIERS:
            try:
                value = run()
                found.append(Tier(text, name(value.dtype), str(value.flatten()[:2].tolist()), why))
            except RuntimeError as error:
                found.append(Tier(text, "refused", str(error).split("\n")[0][:160], why))
    return tuple(found)
