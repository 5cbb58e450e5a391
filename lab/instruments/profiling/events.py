"""What one profiler session saw, as columns.

The events are read in memory: a sealed process can write no trace file, and at 16,000 events this takes half the time of
exporting a Chrome trace and reading it back, with the same rows.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.instruments.profiling.cost import WITH_ARGUMENTS, WITH_TRAFFIC
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
    """Values of the inputs that are no tensors, of operations whose arithmetic depends on them; ``dtypes`` likewise."""
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
        return _columns(profiler_events(profiler))
    finally:
        if was_on:
            gc.enable()


def _columns(given: list[Any]) -> Events:
    """Column by column. A call of a method costs a microsecond: what no event can have is not asked for.

    Events that PyTorch hides are those of its Python tracer, which is never on here.
    """
    if not given:
        return Events()
    of = type(given[0])
    kinds_of = [_KINDS.get(said) for said in map(getattr(of, "activity_type", activity), given)]
    rows = [event for event, kind in zip(given, kinds_of, strict=True) if kind]
    kinds: list[Any] = [kind for kind in kinds_of if kind]
    on_device = any(kind in DEVICE for kind in kinds)
    threads = list(map(of.start_thread_id, rows))
    if on_device:
        threads = [
            event.device_resource_id() if kind in DEVICE else thread
            for event, kind, thread in zip(rows, kinds, threads, strict=True)
        ]
    starts, lengths = list(map(of.start_ns, rows)), list(map(of.duration_ns, rows))
    order = sorted(range(len(rows)), key=lambda at: (threads[at], starts[at], -lengths[at]))
    rows, kinds = [rows[at] for at in order], [kinds[at] for at in order]
    names, none = list(map(of.name, rows)), [0] * len(rows)
    sequence = _only(rows, kinds, of.sequence_nr, _OP, -1)
    return Events(
        name=names,
        kind=kinds,
        start_ns=[starts[at] for at in order],
        duration_ns=[lengths[at] for at in order],
        thread=[threads[at] for at in order],
        number=list(map(of.correlation_id, rows)) if on_device else none,
        launched_by=_only(rows, kinds, of.linked_correlation_id, DEVICE, 0) if on_device else list(none),
        sequence=sequence,
        forward_thread=[
            of.fwd_thread_id(row) if number >= 0 else 0 for row, number in zip(rows, sequence, strict=True)
        ],
        shapes=_only(rows, kinds, of.shapes, _OP, ()),
        dtypes=[of.dtypes(row) if name in WITH_TRAFFIC else () for row, name in zip(rows, names, strict=True)],
        arguments=[
            of.concrete_inputs(row) if name in WITH_ARGUMENTS else () for row, name in zip(rows, names, strict=True)
        ],
        bytes=_only(rows, kinds, of.nbytes, ("memory",), 0),
        details=_only(rows, kinds, of.metadata_json, DEVICE, "") if on_device else [""] * len(rows),
    )


_OP = ("op",)


def _only(rows: list[Any], kinds: list[Kind], read: Any, wanted: tuple[str, ...], other: Any) -> list[Any]:
    return [read(row) if kind in wanted else other for row, kind in zip(rows, kinds, strict=True)]
