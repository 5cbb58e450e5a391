"""What the CPU allocator did while a profiler looked on, in order of time, and inside of what."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class Allocation(NamedTuple):
    """One event of the allocator."""

    time_ns: int
    address: int
    bytes: int
    """Negative for a release."""
    inside: tuple[str, ...]
    """Names of the ranges around it, outermost first: operators, nodes of the engine, ``record_function``."""


def allocator_events(profile: torch.profiler.profile) -> tuple[list[Allocation], dict[str, int]]:
    """Events of a finished profile with ``profile_memory``, and when each range of a name began first (ns).

    Read from the profiler's own tree, which needs no file.
    """
    allocation = torch._C._profiler._EventType.Allocation  # pyright: ignore
    found: list[Allocation] = []
    begun: dict[str, int] = {}
    roots: Any = profile.profiler.kineto_results.experimental_event_tree()  # pyright: ignore
    todo: list[tuple[Any, tuple[str, ...]]] = [(event, ()) for event in roots]
    while todo:
        event, inside = todo.pop()
        if event.tag == allocation:
            fields = event.typed[1]
            found.append(Allocation(event.start_time_ns, fields.ptr, fields.alloc_size, inside))
            continue
        name = event.name
        begun[name] = min(event.start_time_ns, begun.get(name, event.start_time_ns))
        if event.children:
            within = (*inside, name)
            todo.extend((child, within) for child in event.children)
    found.sort(key=lambda event: event.time_ns)
    return found, begun
