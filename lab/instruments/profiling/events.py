"""What one profiler session saw, as columns.

The events are read in memory: a sealed process can write no trace file, and at 16,000 events this takes half the time of
exporting a Chrome trace and reading it back, with the same rows.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.torch_private import activity, profiler_events

Kind = Literal["op", "range", "runtime", "memory", "kernel", "copy"]

_KINDS: dict[str, Kind] = {
    "cpu_op": "op",
    "user_annotation": "range",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "cpu_instant_event": "memory",
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "copy",
}
"""Kineto's activity -> kind. Everything else, such as the device's copy of a range, would count time twice."""
HOST = ("op", "range", "runtime")
DEVICE = ("kernel", "copy")


@dataclass
class Events:
    """One row an event, ordered by thread, then start, then the longer first: a parent comes before its children."""

    name: list[str] = field(default_factory=list)
    kind: list[Kind] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    """Thread of the host; for a device event its stream."""
    number: list[int] = field(default_factory=list)
    """Of an operation: the number by which device events name the operation that launched them."""
    launched_by: list[int] = field(default_factory=list)
    """Of a device event: ``number`` of its operation. 0 for none."""
    sequence: list[int] = field(default_factory=list)
    """Of a forward operation and of its backward node: the same number. -1 for none."""
    forward_thread: list[int] = field(default_factory=list)
    """Of a backward node: the thread of the forward operation. 0 for none."""
    shapes: list[Any] = field(default_factory=list)
    """Of each input; a list of tensors has none."""
    dtypes: list[Any] = field(default_factory=list)
    arguments: list[Any] = field(default_factory=list)
    """Values of the inputs that are no tensors."""
    bytes: list[int] = field(default_factory=list)
    """Of a memory event: allocated, negative for freed."""
    details: list[str] = field(default_factory=list)
    """Of a kernel: JSON members, among them grid, block and occupancy."""

    def __len__(self) -> int:
        return len(self.name)


def read_events(profiler: Any) -> Events:
    """The events of a ``torch.profiler.profile`` that is over. Reading them twice gives the same."""
    was_on = gc.isenabled()
    gc.disable()  # tens of thousands of small lists: the collector would take ten times as long as the reading
    try:
        rows = []
        for event in profiler_events(profiler):
            kind = _KINDS.get(activity(event))
            if kind is not None and not event.is_hidden_event():
                rows.append(_row(event, kind))
        rows.sort(key=lambda row: (row[4], row[2], -row[3]))
        return Events(*map(list, zip(*rows, strict=True))) if rows else Events()
    finally:
        if was_on:
            gc.enable()


def _row(event: Any, kind: Kind) -> tuple[Any, ...]:
    on_device, is_op = kind in DEVICE, kind == "op"
    return (
        event.name(),
        kind,
        event.start_ns(),
        event.duration_ns(),
        event.device_resource_id() if on_device else event.start_thread_id(),
        event.correlation_id(),
        event.linked_correlation_id() if on_device else 0,
        event.sequence_nr() if is_op else -1,
        event.fwd_thread_id() if is_op else 0,
        event.shapes() if is_op else (),
        event.dtypes() if is_op else (),
        event.concrete_inputs() if is_op else (),
        event.nbytes() if kind == "memory" else 0,
        event.metadata_json() if on_device else "",
    )
