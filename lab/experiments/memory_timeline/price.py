"""What the next run will cost, told by the runs before it, so that what does not fit the time is not begun."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lab.experiments.memory_timeline.clock import step_seconds
from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.settings import forward_only
from lab.quantities import seconds_text
from lab.records.memory import Change, Skipped

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


def priced(params: Params, found: Sequence[Change], price: Price) -> list[Change]:
    """The changes with the time of a step that each costs, clocked in turns on a small network of the same kind."""
    small, priced_knobs = small_of(params), [c for c in found if "batch" not in c.knobs]
    if small is None or not priced_knobs or not price.affords("what the changes cost in time", 0.4 * len(found)):
        return list(found)
    plain, *each = step_seconds([small, *(replace(small, **c.knobs) for c in priced_knobs)])
    ratios = {c.title: seconds.median / plain.median for c, seconds in zip(priced_knobs, each, strict=True)}
    return [replace(c, step_ratio=ratios.get(c.title)) for c in found]


def small_of(params: Params) -> Params | None:
    """A small network of the same kind and recipe; None where there is none, or nothing is trained."""
    if params.model not in ("mlp", "cnn", "gpt", "lstm", "llama") or forward_only(params):
        return None
    return replace(
        params,
        **{"layers": min(params.layers, 2), "width": 128, "heads": None, "kv_heads": None, "positions": None},
        **{"vocabulary": min(params.vocabulary, 1000), "seq": min(params.seq, 64), "steps": 1, "predict": False},
        batch=max(4, params.accumulate * 2),
        leak="none",
    )


def _work(params: Params, fake: bool) -> float:
    """In steps of the whole batch; a prediction costs by its operations, so by micro-batches, and not by samples."""
    parts = params.accumulate if fake else 1
    samples = 1 if fake or params.model == "own" else params.batch
    return params.steps * parts * samples * (RECOMPUTING if params.checkpoint != "none" else 1)
