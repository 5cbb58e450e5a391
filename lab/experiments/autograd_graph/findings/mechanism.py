"""How an operation made NaN or infinity: a mechanism is named only where the numbers are those of it."""

from __future__ import annotations

import math

from lab.experiments.autograd_graph.findings.record import (
    bare,
    numbers,
)
from lab.quantities import number_text
from lab.records.operations import NonFinite


def mechanism(seen: NonFinite) -> tuple[str, str]:
    """("got −2 and returned NaN", what to do): the named mechanism only where the numbers are those of it."""
    operation, values = bare(seen.operation), [v for v in seen.at_index if isinstance(v, (int, float))]
    first = values[0] if values else None
    second = (
        values[1] if len(values) > 1 else next((float(n) for n in seen.numbers if isinstance(n, (int, float))), None)
    )
    result = "NaN" if seen.kind == "NaN" else "infinity"
    where = f" at {list(seen.index)}" if seen.index and seen.elements > 1 else ""
    got = (
        f"got {', '.join(number_text(float(v)) for v in values)}{where} and returned {result}"
        if values
        else f"returned {result}{where}"
    )
    if not seen.operands:
        return f"holds {result} that the program gave it{where}", "Give it a number, or replace it: torch.nan_to_num."
    if seen.kind == "infinity":
        return _infinity(operation, first, second, got)
    if operation in ("log", "sqrt", "log2", "log10", "rsqrt", "log1p") and first is not None and first < 0:
        return (
            f"{got}: it has no value below {'−1' if operation == 'log1p' else '0'}",
            "Keep its input in range: clamp(min=1e-8) before it, or where() on the input.",
        )
    reduced = _reduced(seen)
    if operation in ("var", "std", "var_mean", "std_mean") and reduced == 1:
        return (
            "of 1 value divides by n − 1 = 0: 0 / 0 is NaN",
            "correction=0 divides by n; or give it more than one value.",
        )
    if operation == "mean" and seen.operands and math.prod(seen.operands[0].shape or (1,)) == 0:
        return "of no elements divides 0 by 0", "Check that something is selected before the mean."
    if operation in ("div", "truediv", "divide") and first is not None and second is not None:
        if first == 0 and second == 0:
            return f"{got}: 0 / 0", "Add eps to the divisor, or where() on the divisor before the division."
        if math.isinf(first) and math.isinf(second):
            return f"made ∞ / ∞ = NaN{where}", "Compute it in a form that does not overflow."
    if (
        operation in ("sub", "add")
        and first is not None
        and second is not None
        and math.isinf(first)
        and math.isinf(second)
    ):
        return f"made ∞ − ∞ = NaN{where}", "Keep infinity out of it: clamp, or mask before the operation."
    if operation in ("mul", "multiply") and first is not None and second is not None and {0.0} & {first, second}:
        return f"made 0 · ∞ = NaN{where}", "Mask the input of what became infinite, not its output."
    given = [number for operand in seen.operands[:1] for number in numbers(operand.value)]
    if operation in ("softmax", "log_softmax") and (first == math.inf or math.inf in given):
        return (
            f"got an entry of +∞ and returned NaN{where}: ∞ / ∞",
            "Keep the scores finite: clamp them, or scale before softmax.",
        )
    if operation in ("softmax", "log_softmax", "attention") and seen.given_infinity:
        return (
            f"got a row in which every entry is −∞ and returned NaN{where}: 0 / 0",
            "Keep one entry of each row open, or leave fully masked rows out.",
        )
    if operation == "attention":
        return f"returned NaN{where}: softmax over a row that is masked completely is 0 / 0" if any(
            o.dtype == "bool" for o in seen.operands
        ) else got, ("Leave fully masked rows out, or keep one entry open.")
    if operation == "pow" and first is not None and first < 0:
        return f"{got}: a negative number to a broken power has no real value", "Keep its base positive."
    return got, "Look at what this operation was given; keep its input in the range where it has a value."


def _reduced(seen: NonFinite) -> int | None:
    """How many values became one."""
    taken = seen.operands[0].shape if seen.operands else None
    return None if taken is None or not seen.elements else math.prod(taken) // seen.elements


def _infinity(operation: str, first: float | None, second: float | None, got: str) -> tuple[str, str]:
    if operation in ("exp", "expm1", "exp2", "cosh", "sinh") and first is not None:
        return (
            f"{got}: it overflows",
            "Compute it in a form that does not overflow: subtract the maximum, or sigmoid, softplus, logsumexp.",
        )
    if operation in ("log", "log2", "log10") and first == 0:
        return f"{got.replace('infinity', '−infinity')}", "Keep its input above 0: clamp(min=1e-8) or log1p."
    if operation in ("div", "truediv", "divide", "reciprocal") and (
        second == 0 or (operation == "reciprocal" and first == 0)
    ):
        return f"{got}: a division by 0", "Add eps to the divisor."
    return got, "Keep its input smaller, or compute in a wider dtype."
