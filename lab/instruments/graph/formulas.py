"""Derivatives of the common operations with the numbers of one step put in, each checked against the engine.

A rule is a text and the same in float64. A text is kept only where its numbers are what the engine handed on; a hook on
the node, a sum over broadcast dimensions or a rule that is wrong leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

MOST_ELEMENTS = 16
WRITTEN_ELEMENTS = 4
_TOLERANCE = 1e-5

Values = Mapping[str, Any]
"""Saved tensors in float64 and saved numbers by slot, and the incoming gradient as ``grad``."""
Rule = tuple[str, Callable[[Values], Any]]

RULES: dict[tuple[str, int], Rule] = {
    ("MulBackward0", 0): ("{other} · {grad}", lambda v: v["other"] * v["grad"]),
    ("MulBackward0", 1): ("{self} · {grad}", lambda v: v["self"] * v["grad"]),
    ("DivBackward0", 0): ("{grad} / {other}", lambda v: v["grad"] / v["other"]),
    ("DivBackward0", 1): ("−{grad} · {self} / {other}²", lambda v: -v["grad"] * v["self"] / v["other"] ** 2),
    ("AddBackward0", 0): ("{grad}", lambda v: v["grad"]),
    ("AddBackward0", 1): ("{alpha} · {grad}", lambda v: v["alpha"] * v["grad"]),
    ("SubBackward0", 0): ("{grad}", lambda v: v["grad"]),
    ("SubBackward0", 1): ("−{alpha} · {grad}", lambda v: -v["alpha"] * v["grad"]),
    ("NegBackward0", 0): ("−{grad}", lambda v: -v["grad"]),
    ("PowBackward0", 0): (
        "{exponent} · {self}^({exponent} − 1) · {grad}",
        lambda v: v["exponent"] * v["self"] ** (v["exponent"] - 1) * v["grad"],
    ),
    ("ExpBackward0", 0): ("{result} · {grad}", lambda v: v["result"] * v["grad"]),
    ("LogBackward0", 0): ("{grad} / {self}", lambda v: v["grad"] / v["self"]),
    ("SqrtBackward0", 0): ("{grad} / (2 · {result})", lambda v: v["grad"] / (2 * v["result"])),
    ("SigmoidBackward0", 0): (
        "{result} · (1 − {result}) · {grad}",
        lambda v: v["result"] * (1 - v["result"]) * v["grad"],
    ),
    ("TanhBackward0", 0): ("(1 − {result}²) · {grad}", lambda v: (1 - v["result"] ** 2) * v["grad"]),
    ("ReluBackward0", 0): ("({result} > 0) · {grad}", lambda v: (v["result"] > 0) * v["grad"]),
    ("SinBackward0", 0): ("cos({self}) · {grad}", lambda v: v["self"].cos() * v["grad"]),
    ("CosBackward0", 0): ("−sin({self}) · {grad}", lambda v: -v["self"].sin() * v["grad"]),
    ("AbsBackward0", 0): ("sign({self}) · {grad}", lambda v: v["self"].sign() * v["grad"]),
    ("SumBackward0", 0): ("{grad} for each element", lambda v: v["grad"].expand(v["self_sym_sizes"])),
    ("MeanBackward0", 0): (
        "{grad} / {self_sym_numel} for each element",
        lambda v: (v["grad"] / v["self_sym_numel"]).expand(v["self_sym_sizes"]),
    ),
    ("MmBackward0", 0): ("{grad} @ {mat2}ᵀ", lambda v: v["grad"] @ v["mat2"].T),
    ("MmBackward0", 1): ("{self}ᵀ @ {grad}", lambda v: v["self"].T @ v["grad"]),
}


def formula(node: str, slot: int, target: str, names: Mapping[str, str], values: Values, given: torch.Tensor) -> str:
    """``∂x = w · ∂ = 0.5 · 0.235 = 0.1175`` for input ``slot`` of a node; empty where it is not what was ``given``."""
    rule = RULES.get((node, slot))
    if rule is None or any("{" + k + "}" in rule[0] and v is None for k, v in values.items()):
        return ""
    text, derivative = rule
    if values.get("alpha") == 1:
        text = text.replace("{alpha} · ", "")
    try:
        predicted = derivative(values)
    except (KeyError, TypeError, AttributeError, RuntimeError):  # the operands were not kept, or not as tensors
        return ""
    expected = as_number(given)
    if predicted.shape != expected.shape or not torch.allclose(predicted, expected, rtol=_TOLERANCE, atol=1e-30):
        return ""
    called = {k: "∂" if k == "grad" else names.get(k) or _called(k, v) for k, v in values.items()}
    parts = [f"∂{target}", text.format(**called)]
    text = text.removesuffix(" for each element")
    if "@" not in text and text != "{grad}" and all(_fits(v, predicted) for v in values.values()):
        parts.append(_bracketed(text.format(**row) for row in _rows(values, predicted)))
    parts.append(_bracketed(_number(x) for x in predicted.reshape(-1)[:WRITTEN_ELEMENTS].tolist()))
    return " = ".join(parts) + (", …" if predicted.numel() > WRITTEN_ELEMENTS else "")


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
    return f"{value:.6g}".replace("-", "−")


def _bracketed(texts: Iterator[str]) -> str:
    parts = list(texts)
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
