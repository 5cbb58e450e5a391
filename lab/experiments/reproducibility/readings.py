"""Numbers read from a result: for findings, lessons, and for comparing two runs."""

from __future__ import annotations

from lab.contract import Agreement
from lab.experiments.reproducibility.schema import Result
from lab.records.reproducing import Sensitive

agreement = Agreement(relative=2e-2, absolute=1e-12, factors={"is the flag slow": 3.0})


def last_gap(result: Result) -> float:
    """Relative gap of the parameters after the last step."""
    return result.growth[-1].gap if result.growth else float("nan")


def operation(result: Result, name: str) -> Sensitive:
    """What one operation did on this host."""
    return next(row for row in result.sensitive if row.op == name)


def level(result: Result, name: str) -> bool:
    """Whether a level of sameness holds."""
    return next(row.holds for row in result.levels if row.name == name)


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.view == "difference":
        return {
            "equal operations": float(result.equal_operations),
            "first gap": result.first.gap if result.first else 0.0,
            "gap at the end": last_gap(result),
        }
    if result.view == "host":
        return {
            "operations that depend on threads": float(sum(row.threads_equal is False for row in result.sensitive)),
            "refused": float(len(result.refused)),
        }
    if result.view == "levels":
        return {row.name: float(row.holds) for row in result.levels}
    return {
        "distinct results": float(result.distinct),
        "runs": float(result.repeats),
        "draws": float(sum(d.count for d in result.draws)),
    }
