"""Two ways of doing the same work, timed in turns so that noise hits both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

Work = Callable[[], Any]


def seconds_of(work: Work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(ours: Work, theirs: Work, *, rounds: int, warm_up: int = 1) -> tuple[float, float]:
    """Median seconds of each."""
    for _ in range(warm_up):
        ours()
        theirs()
    times = [(seconds_of(ours), seconds_of(theirs)) for _ in range(rounds)]
    return statistics.median(t[0] for t in times), statistics.median(t[1] for t in times)


def line(
    name: str, ours_s: float, theirs_s: float, detail: str, *, better: Literal["higher", "lower"] = "higher"
) -> dict[str, Any]:
    """``higher``: how many times faster ours is. ``lower``: how many times longer ours takes."""
    ratio = theirs_s / ours_s if better == "higher" else ours_s / theirs_s
    return {
        "name": name,
        "ratio": round(ratio, 3),
        "better": better,
        "ours": round(ours_s, 6),
        "theirs": round(theirs_s, 6),
        "unit": "s",
        "detail": detail,
    }
