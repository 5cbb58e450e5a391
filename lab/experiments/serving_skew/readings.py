"""Numbers read from a result: for the lessons, the exit status, and for comparing two runs."""

from __future__ import annotations

from lab.contract import Agreement
from lab.experiments.serving_skew.schema import Result

agreement = Agreement(relative=1e-3, absolute=1e-9)


def passed(result: Result) -> bool | None:
    """Whether the visitor's two paths agree; None where nothing of theirs was compared."""
    if result.view != "own" or not (result.stages or result.fault):
        return None
    return not result.first and result.fault is None


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.power:
        mine = [p for p in result.power if p.rows == result.rows and p.skew not in ("none", "batches of one")]
        return {
            "skews shown": float(sum(p.shown for p in mine)),
            "skews that change a name": float(sum(p.labels > 0 for p in mine)),
        }
    return {
        "stages that part": float(sum(not stage.agrees for stage in result.stages)), "gap at the first": gap_at_first(result),
        "names changed": result.labels_changed,
    }  # fmt: skip


def gap_at_first(result: Result) -> float:
    """Gap of the first stage that parts; 0 where none does."""
    return next((stage.gap for stage in result.stages if not stage.agrees), 0.0)


def shown_by_value(result: Result, rows: int) -> int:
    """Planted skews that the golden rows show by comparing values."""
    return sum(p.shown for p in result.power if p.rows == rows)


def shown_by_name(result: Result, rows: int) -> int:
    """Planted skews that change at least one name."""
    return sum(p.labels > 0 for p in result.power if p.rows == rows)
