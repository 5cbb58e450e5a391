"""What each autograd node keeps for backward, slot by slot, while the track runs."""

from __future__ import annotations

import torch
from torch.autograd.graph import Node

from lab.instruments.memory.hooks import Held, label_nodes
from lab.instruments.memory.ledger import Ledger
from lab.instruments.memory.tracker import OUTSIDE, MemoryTrack
from lab.records.memory import SavedTensor
from lab.torch_private import is_recomputed, node_metadata, peek, saved_slots


def saved_tensors(loss: torch.Tensor, track: MemoryTrack) -> list[SavedTensor]:
    """Every slot of the graph behind ``loss``, nodes in the order in which backward may run them. Nothing is unpacked."""
    if loss.grad_fn is None:
        return []
    track.quiet = True
    try:
        label_nodes([loss.grad_fn], OUTSIDE)
        return [
            row
            for node in _nodes(loss.grad_fn)
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


def _nodes(root: Node) -> list[Node]:
    """Each node once, depth first."""
    found, seen, todo = [], set(), [root]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            found.append(node)
            todo.extend(parent for parent, _ in reversed(node.next_functions) if parent is not None)
    return found
