"""What is alive when a step is over, besides parameters, gradients, optimizer state, buffers and inputs, and why."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from lab.instruments.memory.holders import Holder, contexts, tensors_by_name
from lab.instruments.memory.hooks import Held
from lab.instruments.memory.ledger import Ledger, Storage, storages_of
from lab.instruments.memory.saved import nodes_behind
from lab.instruments.memory.tracker import MemoryTrack
from lab.records.memory import Kept
from lab.torch_private import peek, saved_slots

_EXPECTED = ("parameters", "buffers", "inputs", "workspaces")


@dataclass(frozen=True)
class _How:
    """How one storage is held."""

    name: str = ""
    kind: str = ""
    holds: str = "tensor"
    view_bytes: int = 0
    with_graph: bool = False


def kept(track: MemoryTrack, names: Mapping[str, Any]) -> list[Kept]:
    """Groups of storages, the largest first. Names those in the ledger that had none."""
    ledger = track.ledger
    roles = {event.storage for event in ledger.events if event.kind in ("gradient", "optimizer state")}
    alive = {s.number: s for s in ledger.alive() if s.static not in _EXPECTED and s.number not in roles}
    track.quiet = True
    try:
        how = _holders(ledger, alive, names)
    finally:
        track.quiet = False
    groups: dict[tuple, list[tuple[Storage, _How]]] = defaultdict(list)
    for number, storage in alive.items():
        holder = how.get(number, _How())
        if not storage.name and holder.holds != "graph":
            storage.name = holder.name
        step = -1 if storage.op < 0 else storage.step
        name = re.sub(r"\[\d+\]", "[*]", holder.name)
        key = step, storage.op_name, storage.module, storage.line, name, holder.holds, holder.with_graph
        groups[key].append((storage, holder))
    return sorted((_group(key[0], key[4], members) for key, members in groups.items()), key=lambda row: -row.bytes)


def _group(step: int, name: str, members: list[tuple[Storage, _How]]) -> Kept:
    largest, holder = max(members, key=lambda member: member[0].bytes)
    return Kept(
        step,
        largest.op_name,
        largest.phase,
        largest.module,
        largest.line,
        str(list(largest.shape)),
        largest.dtype,
        sum(storage.bytes for storage, _ in members),
        len(members),
        name,
        None,
        holder.kind,
        holder.holds,
        sum(how.view_bytes for _, how in members),
        holder.with_graph,
    )


def _holders(ledger: Ledger, alive: Mapping[int, Storage], names: Mapping[str, Any]) -> dict[int, _How]:
    """Number -> how: by a name if there is one, else by a context, else by the graph behind a tensor with a name."""
    named = list(tensors_by_name(names))
    found: dict[int, _How] = {}
    views: dict[int, list[torch.Tensor]] = defaultdict(list)
    for holder in [*named, *contexts()]:
        for storage in storages_of(holder.tensor):
            number = ledger.number(storage)
            if number is not None and number in alive:
                views[number].append(holder.tensor)
                found.setdefault(number, _How(holder.path, holder.kind, "tensor", 0, holder.tensor.grad_fn is not None))
    for number, tensors in views.items():
        size = sum({(t.storage_offset(), t.shape): t.numel() * t.element_size() for t in tensors}.values())
        if tensors[0].layout is torch.strided and size < alive[number].bytes:
            found[number] = replace(found[number], holds="view", view_bytes=size)
    for number, holder in _by_graph(named, set(alive) - set(found)).items():
        found[number] = _How(holder.path, holder.kind, "graph", 0, with_graph=True)
    return found


def _by_graph(named: list[Holder], wanted: set[int]) -> dict[int, Holder]:
    """Number of a saved storage -> a tensor with a name whose graph saved it."""
    found: dict[int, Holder] = {}
    seen: set[Any] = set()
    for holder in named:
        if wanted - found.keys() and holder.tensor.grad_fn is not None:
            for node in nodes_behind(holder.tensor.grad_fn, seen):
                for _, packed in saved_slots(node):
                    held = peek(packed)
                    if isinstance(held, Held):
                        found |= {number: holder for number in held.numbers if number in wanted and number not in found}
    return found
