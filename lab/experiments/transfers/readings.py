"""Numbers read from a result: for findings, lessons, and for comparing two runs."""

from __future__ import annotations

from lab.contract import Agreement
from lab.experiments.transfers.schema import Result

agreement = Agreement(factors={"a transposed copy": 4.0})


def total(result: Result) -> float:
    """Waits of the program."""
    return float(sum(wait.times for wait in result.waits))


def seconds_of(result: Result, kind: str, size: int) -> float:
    """Of one copy of the largest size up to ``size``."""
    b = result.bandwidth
    rows = [(n, s) for k, n, s in zip(b.kind, b.bytes, b.seconds, strict=True) if k == kind and n <= size]
    return max(rows)[1]


def stride_ratio(result: Result) -> float:
    """A transposed copy of 16 MiB against one as it lies."""
    return seconds_of(result, "transposed", 1 << 24) / seconds_of(result, "as it lies", 1 << 24)


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.view == "waits":
        per = {"waits a step": total(result) / result.steps} if result.steps else {}
        return {"waits": total(result), "lines": float(len({wait.line for wait in result.waits})), **per}
    if result.view == "copies" and "transposed" in result.bandwidth.kind:
        return {"transposed against as it lies": stride_ratio(result)}
    return {"overlap": result.overlap} if result.overlap is not None else {}
