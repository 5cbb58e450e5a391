"""Numbers read from a result: for the lessons, and for comparing two runs."""

from __future__ import annotations

from collections import Counter

from lab.contract import Agreement
from lab.experiments.gradient_modes.schema import Result

agreement = Agreement(
    factors={"eval or the mode": 4.0},
)


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.view == "uses":
        return {"uses that fail": float(sum(use.outcome != "ok" for use in result.uses))}
    if result.view == "matrix":
        row = result.modes[-1]
        return {"saved_bytes": float(row.saved_bytes), "records": float(row.records), "mul_s": row.mul_s}
    return {
        "operations": float(len(result.lines) + result.lines_cut),
        "results with history": float(sum(bool(op.grad_fn) for op in result.lines)),
        "switches": float(len(result.switches)),
        "inference tensors": float(sum(birth.inference for birth in result.births)),
    }


def counts_by_line(result: Result) -> dict[int, Counter[str]]:
    """Operations of each line by mode."""
    found: dict[int, Counter[str]] = {}
    for op in result.lines:
        if op.line:
            found.setdefault(op.line, Counter())[op.mode] += 1
    return found


def value(result: Result, name: str) -> float:
    """A number or truth value that the program left."""
    return (result.values or {})[name]
