"""Derivatives of the common operations with the numbers of one step put in, each checked against the engine.

A rule is a text and the same in float64. A text is kept only where its numbers are what the engine handed on; a hook on
the node or a rule that is wrong leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from lab.instruments.graph.formula_rules import Values, rule_of

MOST_ELEMENTS = 16
WRITTEN_ELEMENTS = 4
_TOLERANCE = 1e-5


def formula(node: str, slot: int, target: str, names: Mapping[str, str], values: Values, given: torch.Tensor) -> str:
    """``∂x = w · ∂ = 0.5 · 0.235 = 0.1175`` for input ``slot`` of a node; empty where it is not what was ``given``."""
    rule = rule_of(node, slot)
    if rule is None:
        return ""
    values = {**values, "slot": slot}
    try:
        predicted = rule.derivative(values)
        summed = _summed_dims(predicted, given)
        predicted = predicted.sum_to_size(given.shape)
        text = rule.text if isinstance(rule.text, str) else rule.text(values)
        for factor in ("alpha", "beta"):
            text = text.replace(f"{{{factor}}} · ", "") if values.get(factor) == 1 else text
        # sums of many terms cancel: their rounding is that of the largest
        rounding = 0.0 if rule.each else 1e-6 * float(predicted.abs().max())
        if not torch.allclose(predicted, as_number(given), rtol=_TOLERANCE, atol=max(rounding, 1e-30)):
            return ""
        called = {k: "∂" if k == "grad" else names.get(k) or _called(k, v) for k, v in values.items()}
        parts = [f"∂{target}", summed + text.format(**called, to=target)]
    except (LookupError, TypeError, AttributeError, RuntimeError, ValueError, ArithmeticError):
        return ""  # the operands were not kept, or not as tensors
    text = text.removesuffix(" for each element")
    if rule.each and not summed and text != "{grad}" and all(_fits(v, predicted) for v in values.values()):
        parts.append(_bracketed(text.format(**row) for row in _rows(values, predicted)))
    parts.append(_bracketed(_number(x) for x in predicted.reshape(-1)[:WRITTEN_ELEMENTS].tolist()))
    return " = ".join(parts) + (", …" if predicted.numel() > WRITTEN_ELEMENTS else "")


def _summed_dims(predicted: torch.Tensor, given: torch.Tensor) -> str:
    """The dims along which an operand was broadcast, over which its gradient is a sum."""
    extra = predicted.dim() - given.dim()
    sizes = (1,) * extra + tuple(given.shape)
    dims = [d for d, (a, b) in enumerate(zip(predicted.shape, sizes, strict=True)) if a != b]
    return f"sum over dim{'s' * (len(dims) > 1)} {', '.join(map(str, dims))} of " if dims else ""


def as_number(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host in float64."""
    return tensor.detach().cpu().to(torch.float64, copy=True)


def _rows(values: Values, predicted: torch.Tensor) -> Iterator[dict[str, str]]:
    """The numbers of each element, the first ones."""
    flat = {
        k: v.expand(predicted.shape).reshape(-1).tolist() if isinstance(v, torch.Tensor) else [v] * predicted.numel()
        for k, v in values.items()
    }
    for i in range(min(predicted.numel(), WRITTEN_ELEMENTS)):
        texts = {k: _number(v[i]) for k, v in flat.items()}
        yield {k: f"({text})" if text.startswith("−") else text for k, text in texts.items()}


def _fits(value: Any, predicted: torch.Tensor) -> bool:
    if not isinstance(value, torch.Tensor):
        return True
    dims = zip(reversed(value.shape), reversed(predicted.shape), strict=False)
    return value.dim() <= predicted.dim() and all(a in (1, b) for a, b in dims)


def _called(slot: str, value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return _number(value.item()) if value.numel() == 1 and slot != "result" else slot
    return _number(value)


def _number(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value + 0:.6g}".replace("-", "−")


def _bracketed(texts: Iterator[str]) -> str:
    parts = list(texts)
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
