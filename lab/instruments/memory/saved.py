"""What each autograd node keeps for backward, slot by slot, while the track runs."""

from __future__ import annotations

import torch
from torch.autograd.graph import Node

from lab.instruments.memory.hooks import Held, label_nodes
from lab.instruments.memory.ledger import Ledger, storages_of
from lab.instruments.memory.tracker import OUTSIDE, MemoryTrack
from lab.records.memory import SavedTensor
from lab.torch_private import is_custom, is_recomputed, node_metadata, peek, saved_slots


def saved_tensors(loss: torch.Tensor, track: MemoryTrack) -> list[SavedTensor]:
    """Every slot of the graph behind ``loss``, nodes in the order in which backward may run them. Nothing is unpacked."""
    if loss.grad_fn is None:
        return []
    track.quiet = True
    try:
        label_nodes([loss.grad_fn], OUTSIDE)
        return [
            row
            for node in nodes_behind(loss.grad_fn)
            for slot, packed in saved_slots(node)
            if (row := _row(node, slot, peek(packed), track.ledger)) is not None
        ]
    finally:
        track.quiet = False


def _row(node: Node, slot: str, held: object, ledger: Ledger) -> SavedTensor | None:
    module = node_metadata(node).get("module", OUTSIDE)
    if is_recomputed(held):
        return SavedTensor(node.name(), slot, module, None, None, None, None, None, "recomputed", kept=False)
    if not isinstance(held, Held) or not held.numbers:  # saved before the track began, or without bytes
        return None
    alias, storage = held.alias, ledger.storages[held.numbers[0]]
    return SavedTensor(
        node.name(),
        slot,
        module,
        tuple(alias.shape),
        str(alias.dtype).removeprefix("torch."),
        alias.numel() * alias.element_size(),
        sum(ledger.storages[number].bytes for number in held.numbers),
        storage.number,
        storage.static or ("weight_casts" if storage.is_cast else "saved"),
        kept=True,
    )


def nodes_behind(root: Node, seen: set[Node] | None = None) -> list[Node]:
    """Each node once, depth first, none of those ``seen``, which the call adds to."""
    found, todo = [], [root]
    seen = set() if seen is None else seen
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            found.append(node)
            todo.extend(parent for parent, _ in reversed(node.next_functions) if parent is not None)
    return found


def saved_bytes(loss: torch.Tensor, track: MemoryTrack) -> int:
    """Bytes that only the graphs of the forward that has just ended keep: what autograd saved, checkpointed segments hold
    as their inputs, and custom Functions put on ``ctx``. Parameters, inputs and what the program holds do not count.
    """
    ledger = track.ledger
    first = len(track.operations)
    while first and track.operations[first - 1][1::2] == ("forward", track.step):  # phase and step
        first -= 1
    holders: dict[int, int] = {}
    for event in ledger.events:
        if event.op >= first:
            change = {"saved": 1, "released": -1}.get(event.kind, 0)
            holders[event.storage] = holders.get(event.storage, 0) + change
    kept = {number for number, count in holders.items() if count > 0}
    for node in nodes_behind(loss.grad_fn) if loss.grad_fn is not None else []:
        if is_custom(node):
            tensors = [value for value in vars(node).values() if isinstance(value, torch.Tensor)]
            kept |= {n for t in tensors for storage in storages_of(t) if (n := ledger.number(storage)) is not None}
    found = (ledger.storages[number] for number in kept)
    return sum(storage.bytes for storage in found if not storage.static and not storage.is_cast)
