"""How long a step takes when nothing looks at it, its parts by the plain clock, and whether something got in between."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from lab.instruments.profiling.session import synchronize
from lab.records.profiling import Spread

_LOST = 0.05
"""Share of a lap beyond which what was lost counts."""
_UNSTEADY = 1.3
"""Upper over lower quartile of repeats that are one measurement no more."""


@dataclass(frozen=True)
class Lap:
    """One timed call."""

    total_s: float
    waited_s: float
    """Wall clock without processor time of the calling thread: it slept, waited, or another program had the processor."""
    interruptions: int
    """How often the system took the processor away from a thread of this process."""


def spread(samples: Sequence[float]) -> Spread:
    """The median is a measured value: of an even number, the lower of the middle two."""
    ordered = sorted(samples)
    return Spread(ordered[(len(ordered) - 1) // 2], ordered[0], ordered[-1])


def unmarked(part: str) -> AbstractContextManager[Any]:
    """The mark that leaves no trace."""
    return nullcontext()


def lap(call: Callable[[], Any], device: str) -> Lap:
    """Time one call. The device is idle before, and done with all of it after."""
    synchronize(device)
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    used, started = time.thread_time(), time.perf_counter()
    call()
    synchronize(device)
    total_s = time.perf_counter() - started
    waited_s = max(0.0, total_s - (time.thread_time() - used))
    return Lap(total_s, waited_s, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches)


def timed(call: Callable[[], Any], device: str) -> float:
    """Seconds of one call."""
    return lap(call, device).total_s


def disturbed(laps: Sequence[Lap]) -> list[bool]:
    """Of repeats of one call: where other programs took more than 5 % of the time.

    What the call itself waits for, such as a loader's process, it waits for in every lap: the least counts as its own.
    """
    own_s = min((one.waited_s for one in laps), default=0.0)
    return [one.interruptions > 0 and one.waited_s - own_s > _LOST * one.total_s for one in laps]


def is_steady(samples: Sequence[float]) -> bool:
    """Whether repeats agree well enough to be compared: quartiles within a third. Fewer than four tell by their ends."""
    ordered, cut = sorted(samples), len(samples) // 4
    return bool(ordered) and ordered[-1 - cut] <= _UNSTEADY * ordered[cut]


class PartClock:
    """A mark that notes the seconds of each part in ``seconds``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - started
