"""The threads that a bare program has: a process that serves many runs keeps one, and one thread picks other kernels than two."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


def _cores() -> int:
    """What torch takes when nobody says otherwise: the cores that this process may run on."""
    cpus = os.sched_getaffinity(0)
    try:
        return len({_core(cpu) for cpu in cpus})
    except OSError:
        return len(cpus)


def _core(cpu: int) -> tuple[str, str]:
    """Two threads of one core have the same."""
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    return (folder / "physical_package_id").read_text(), (folder / "core_id").read_text()


BARE_THREADS = _cores()
"""Read when this module is imported: a confined process can read it no more."""


@contextmanager
def bare_threads() -> Iterator[None]:
    """The threads of a bare program inside; outside as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(BARE_THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)
