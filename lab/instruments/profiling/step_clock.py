"""How long a step takes when nothing looks at it, and its parts by the plain clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from lab.instruments.profiling.session import synchronize
from lab.records.profiling import Spread


def spread(samples: Sequence[float]) -> Spread:
    """The median is a measured value: of an even number, the lower of the middle two."""
    ordered = sorted(samples)
    return Spread(ordered[(len(ordered) - 1) // 2], ordered[0], ordered[-1])


def unmarked(part: str) -> AbstractContextManager[Any]:
    """The mark that leaves no trace."""
    return nullcontext()


def timed(call: Callable[[], Any], device: str) -> float:
    """Seconds of one call. The device is idle before, and done with all of it after."""
    synchronize(device)
    started = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - started


class PartClock:
    """A mark that notes the seconds of each part in ``seconds``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - started
