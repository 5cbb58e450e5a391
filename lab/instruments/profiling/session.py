"""One profiler session at a time: a second one empties the first, and two in two threads crash the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from lab.instruments.profiling.events import Events, read_events

_ONE_AT_A_TIME = threading.Lock()


class SessionBusyError(RuntimeError):
    """Another profiler session is open in this process."""


@contextmanager
def only_session() -> Iterator[None]:
    """Keeps every other session away meanwhile. Raises SessionBusyError when one is open."""
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise SessionBusyError("A profiler session is open in this process. End it before the next one starts.")
    try:
        yield
    finally:
        _ONE_AT_A_TIME.release()


class OpSession:
    """Context manager around the code to profile; ``events`` is filled when it is left.

    Raises SessionBusyError when a session is open. ``memory``: also what was allocated and freed. ``shapes``: of inputs.
    """

    def __init__(self, device: str, *, memory: bool = True, shapes: bool = True) -> None:
        self._device = device
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
        self.profiler = profile(activities=activities, record_shapes=shapes, profile_memory=memory)
        self.events = Events()

    def __enter__(self) -> OpSession:
        with ExitStack() as entered:
            entered.enter_context(only_session())
            synchronize(self._device)
            self.profiler.__enter__()
            self._session = entered.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        with self._session:
            synchronize(self._device)  # kernels that still run would be missing
            self.profiler.__exit__(*error)
            self.events = read_events(self.profiler)


def synchronize(device: str) -> None:
    """Wait for the device. The CPU is never behind."""
    if device == "cuda":
        torch.cuda.synchronize()
