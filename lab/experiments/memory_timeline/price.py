"""What the next run will cost, told by the runs before it, so that what does not fit the time is not begun."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from lab.experiments.memory_timeline.schema import Params
from lab.quantities import seconds_text
from lab.records.memory import Skipped

RECOMPUTING = 1.5
"""A checkpointed step runs its forward twice."""


class Price:
    """Seconds a sample of work, of real runs and of predictions apart; ``skipped`` grows."""

    def __init__(self, budget_s: float) -> None:
        self.deadline = time.monotonic() + budget_s
        self.skipped: list[Skipped] = []
        self._each_s: dict[bool, float] = {}

    @contextlib.contextmanager
    def paid(self, params: Params, fake: bool) -> Iterator[None]:
        """Time a run."""
        started = time.monotonic()
        yield
        self._each_s[fake] = (time.monotonic() - started) / _work(params, fake)

    def of(self, params: Params, fake: bool) -> float:
        """Seconds that a run will take, 0 while nothing like it has been run."""
        return self._each_s.get(fake, 0.0) * _work(params, fake)

    def affords(self, name: str, seconds: float) -> bool:
        """Whether so many seconds are left; else it is noted as skipped."""
        left = self.deadline - time.monotonic()
        if seconds <= left:
            return True
        reason = f"It would take about {seconds_text(seconds)}; {seconds_text(max(left, 0.0))} are left."
        self.skipped.append(Skipped(name, reason))
        return False


def _work(params: Params, fake: bool) -> float:
    """In steps of the whole batch; a prediction costs by its operations, so by micro-batches, and not by samples."""
    parts = params.accumulate if fake else 1
    samples = 1 if fake or params.model == "own" else params.batch
    return params.steps * parts * samples * (RECOMPUTING if params.checkpoint != "none" else 1)
