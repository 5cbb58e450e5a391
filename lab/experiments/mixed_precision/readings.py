"""Numbers read from a result: for findings, lessons, and for comparing two runs."""

from __future__ import annotations

from lab.contract import Agreement
from lab.experiments.mixed_precision.schema import Result
from lab.records.precision import FormatShare

agreement = Agreement(relative=2e-3, absolute=1e-9)


def share(result: Result, name: str, scale: float) -> FormatShare:
    """What a format with a scale loses."""
    return next(row for row in result.shares if (row.format, row.scale) == (name, scale))


def measured_zero(result: Result) -> float:
    """Share that is 0 after the real backward pass with the largest scale that was asked for."""
    found = result.layers[0]
    row = next((r for r in result.shares if (r.format, r.scale) == (found.dtype, found.scale)), None)
    return row.measured_zero if row is not None and row.measured_zero is not None else float("nan")


def dead_layers(result: Result) -> int:
    """Layers whose weight gradients are all 0."""
    return sum(layer.zero == 1.0 for layer in result.layers)


def skips(result: Result) -> int:
    """Steps that the scaler skipped."""
    return sum(step.skipped for step in result.steps)


def moved(result: Result, dtype: str, lr: float) -> float:
    """Share of weights that moved in one step of Adam."""
    return next(row.moved for row in result.moved if (row.dtype, row.lr) == (dtype, lr))


def drift(result: Result, what: str, dtype: str) -> float:
    """Where a sum or an average ended."""
    return next(row.value for row in result.drifts if row.what.startswith(what) and row.dtype == dtype)


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.layers:
        one = (
            share(result, result.format, result.layers[0].scale)
            if any(r.scale == result.layers[0].scale for r in result.shares)
            else None
        )
        told = {"zero by casting": one.zero, "infinite by casting": one.overflow} if one else {}
        return {
            **told,
            "zero after a real backward": measured_zero(result),
            "layers without gradient": float(dead_layers(result)),
        }
    if result.steps:
        return {
            "skipped steps": float(skips(result)),
            "scale at the end": result.steps[-1].scale,
            "loss at the end": result.steps[-1].loss,
        }
    if result.moved:
        return {"moved in bf16 at 1e-05": moved(result, "bf16", 1e-5)}
    if result.matmul:
        return {
            "error of bf16 at the longest sum": next(
                m.error for m in reversed(result.matmul) if m.dtype == "bf16" and m.accumulate == "by torch"
            )
        }
    return {"operations in 16 bits": float(sum(op.count for op in result.ops if op.output in ("float16", "bfloat16")))}
