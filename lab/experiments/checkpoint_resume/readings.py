"""Numbers and words read from a result: for findings, lessons, figures, and for comparing two runs."""

from __future__ import annotations

from lab.contract import Agreement
from lab.experiments.checkpoint_resume.schema import Result
from lab.records.resume import Resumed, part_words

agreement = Agreement(relative=1e-4, absolute=1e-12)

__all__ = ["agreement", "case_bytes", "headline", "moved_positions", "never_in_training", "part_words", "short"]


def short(number: float) -> str:
    """Four significant digits."""
    return f"{number:.4g}"


def never_in_training(result: Result) -> list[Resumed]:
    """Parts that no training loss misses, and evaluation does."""
    return [
        one for one in result.omissions if one.first_different is None and (one.eval_gap_model or one.eval_gap_average)
    ]


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.chosen is not None:
        one = result.chosen
        first = -1.0 if one.first_different is None else float(one.first_different)
        return {"first different step (-1: never)": first, "mean gap": one.mean_gap, "weights apart": one.weights_apart}
    if result.keys is not None:
        return {"tensors loaded": float(result.keys.changed), "positions moved": float(moved_positions(result))}
    if result.refusals:
        return {"refused": float(sum(case.refused for case in result.refusals))}
    if result.file_bytes:
        return {"file_bytes": float(result.file_bytes)}
    return {"losses of state": float(len(result.losses)), "events": float(len(result.events))}


def moved_positions(result: Result) -> int:
    """Optimizer states that belong to another parameter after loading."""
    return sum(p.saved_for != p.loaded_into for p in result.positions)


def case_bytes(result: Result, what: str) -> float:
    """Bytes of one file of the file view."""
    return float(next(case.bytes for case in result.files if case.what == what))
