"""Numbers read from a result: for findings, lessons, and for comparing two runs."""

from __future__ import annotations

from lab.contract import Agreement
from lab.experiments.fine_tuning.schema import Result
from lab.records.fine_tuning import Moved

agreement = Agreement(relative=1e-3, absolute=1e-9)


def group(result: Result, part: str) -> float:
    """Distance of all weights of ``backbone`` or ``head``, or of all ``statistics`` of the model."""
    rows = [row for row in result.moved if _belongs(row, part)]
    return sum(row.distance**2 for row in rows) ** 0.5


def _belongs(row: Moved, part: str) -> bool:
    if part == "statistics":
        return row.kind == "statistic"
    return row.kind == "weight" and row.name.startswith(part)


def final_loss(result: Result) -> float:
    """Mean of the last ten steps."""
    last = result.losses[-10:]
    return sum(last) / len(last) if last else float("nan")


def accuracy_after(result: Result) -> float:
    """On the second task."""
    return result.accuracy[-1].after if result.accuracy else float("nan")


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.view == "moved":
        return {
            "backbone moved": group(result, "backbone"), "statistics moved": group(result, "statistics"),
            "head moved": group(result, "head"), "accuracy": accuracy_after(result),
        }  # fmt: skip
    if result.lora:
        return {
            "trained numbers": float(result.lora.trainable),
            "merge gap": result.lora.merge_gap,
            "accuracy": result.lora.accuracy,
        }
    if result.midway:
        return {"largest movement of frozen weights": max(row.moved for row in result.midway)}
    if result.shares:
        return {"best accuracy": max(row.accuracy for row in result.shares)}
    return {
        "tensors that moved": float(sum(row.distance > 0 for row in result.moved)),
        "surprises": float(len(result.surprises)),
    }


def midway(result: Result, optimizer: str, decay: float, set_to_none: bool) -> float:
    """Movement of the frozen backbone in one of the eight cases."""
    return next(
        row.moved
        for row in result.midway
        if (row.optimizer, row.weight_decay, row.set_to_none) == (optimizer, decay, set_to_none)
    )
