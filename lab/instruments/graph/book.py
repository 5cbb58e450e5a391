"""The graph that autograd holds, written down while the program runs.

NOTE [ How a node is remembered ]
1. autograd has no name for a node that outlives its Python wrapper, and holding the node would keep its saved tensors
   alive. So what is known about a node at birth (line, value, versions) is put into ``Node.metadata``, a dict that lives
   and dies with the node itself. ``Seen`` holds plain data and weak references only.
2. A leaf is known by its variable, not by its AccumulateGrad node: that node dies with the last graph that uses it and a
   later graph gets another one.
3. Saved slots are read packed. Unpacking would run checkpointed forwards again. torch does not tell at which version a
   tensor was saved, so the counter is read when the node is born; comparing it later shows in-place writes.
4. Backward frees saved tensors, so the graph is walked before each backward pass and once more at the end. A freed slot
   keeps what the last walk saw.
5. A storage is known by a weak reference: while that is held no other storage gets its address, so equal numbers are one
   piece of memory over all walks, and writes are blamed on the right line.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import Node as TorchNode
from torch.utils.weak import WeakTensorKeyDictionary

from lab import torch_private
from lab.instruments.describing.names import Names
from lab.instruments.describing.values import dtype_name, known_shape, shape_of
from lab.instruments.graph.storages import Storages
from lab.records.graph import Kind, Plain

KEY = "pytorch-internals-lab"


@dataclass(eq=False, slots=True)
class Slot:
    """A saved slot, as last read before it was freed."""

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    bytes: int | None = None
    storage_bytes: int | None = None
    storage: int | None = None
    saved_version: int | None = None
    current_version: int | None = None
    leaf: Seen | None = None
    variable: str | None = None
    view_of: str = ""
    freed: bool = False
    recomputed: bool = False
    changed: tuple[int | None, str] | None = None
    freed_by: tuple[str, int | None, int] | None = None
    """(call, line, moment) of the pass that freed it."""


@dataclass(eq=False, slots=True)
class Seen:
    """What is known about one node."""

    serial: int
    name: str
    kind: Kind
    shape: tuple[int, ...] | None
    dtype: str | None
    device: str | None
    outputs: int
    line: int | None = None
    module: str | None = None
    value: Plain = None
    grad: Plain = None
    slots: list[Slot] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    variable: weakref.ref[torch.Tensor] | None = None
    """For a leaf: the tensor."""
    state: Any = None
    """The content of the tensor that it made, as in the log of tensors."""
    first_name: str = ""
    """For a leaf: its name when it was first used, for a program that gives the name to something else later."""

    @property
    def label(self) -> str:
        if self.kind == "leaf":
            return self.variables[0] if self.variables else self.first_name or "leaf"
        bare = re.sub(r"Backward\d*$", "", self.name)
        return bare if self.kind == "custom" else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare).lower()


@dataclass(eq=False, slots=True)
class Graph:
    """One walk: nodes with their live torch nodes, edges (source, target, index, slot), and the bytes kept alive."""

    nodes: list[tuple[Seen, TorchNode | None]]
    edges: list[tuple[Seen, Seen, int, int]]
    kept_bytes: int

    def let_go(self) -> None:
        """Hold the graph no longer; what was seen stays."""
        self.nodes = [(seen, None) for seen, _ in self.nodes]


class GraphBook:
    """Remembers nodes at birth and walks graphs. See the NOTE above."""

    def __init__(self) -> None:
        self.storages = Storages()
        self._serial = 0
        self._leaves: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def born(self, node: TorchNode, birth: Callable[[Seen], None]) -> bool:
        """Remember ``node`` and the unknown nodes behind it, calling ``birth`` on each. False when it was known."""
        if KEY in torch_private.node_metadata(node):
            return False
        todo = [node]
        while todo:
            node = todo.pop()
            if KEY not in torch_private.node_metadata(node) and not torch_private.is_leaf_node(node):
                birth(self.see(node))
                todo.extend(parent for parent, _ in node.next_functions if parent is not None)
        return True

    def see(self, node: TorchNode) -> Seen:
        """The record of ``node``, made now if there is none."""
        metadata = torch_private.node_metadata(node)
        if KEY not in metadata:
            is_leaf = torch_private.is_leaf_node(node)
            metadata[KEY] = self.leaf(torch_private.leaf_of(node)) if is_leaf else self._function(node)
        return metadata[KEY]

    def leaf(self, tensor: torch.Tensor) -> Seen:
        """The record of a leaf tensor."""
        seen = self._leaves.get(tensor)
        if seen is None:
            shape, dtype = shape_of(tensor), dtype_name(tensor.dtype)
            seen = Seen(self._next(), "AccumulateGrad", "leaf", shape, dtype, str(tensor.device), 1)
            seen.variable = weakref.ref(tensor)
            self._leaves[tensor] = seen
        return seen

    def known_leaf(self, tensor: torch.Tensor) -> Seen | None:
        """The record of a leaf that was met."""
        return self._leaves.get(tensor)

    def leaves(self) -> list[Seen]:
        """Every leaf that was met and lives."""
        return list(self._leaves.values())

    def _function(self, node: TorchNode) -> Seen:
        outputs = torch_private.output_metadata(node)
        first = outputs[0] if outputs else None
        seen = Seen(
            self._next(),
            type(node).__name__,
            "function",
            known_shape(first.shape) if first and not first.is_nested_tensor else None,
            dtype_name(first.dtype) if first else None,
            str(first.device) if first else None,
            len(outputs),
        )
        seen.slots = [self._new_slot(name, held) for name, held in _held(node)]
        seen.kind = self._kind(node, seen)
        return seen

    def _kind(self, node: TorchNode, seen: Seen) -> Kind:
        if seen.name == "CheckpointFunctionBackward" or any(slot.recomputed for slot in seen.slots):
            return "checkpoint"
        if torch_private.is_custom(node):
            return "custom"
        return "in-place" if seen.name in ("CopySlices", "CopyBackwards") else "function"

    def _new_slot(self, name: str, held: Any) -> Slot:
        slot = Slot(name, recomputed=torch_private.is_recomputed(held))
        if isinstance(held, torch.Tensor):
            slot.shape, slot.dtype = shape_of(held), dtype_name(held.dtype)
            slot.saved_version = (
                None if name.startswith(_ON_CTX) else torch_private.version(held)
            )  # no engine compares it
            slot.bytes = held.numel() * held.element_size()
            slot.storage_bytes = held.untyped_storage().nbytes() if held.layout is torch.strided else slot.bytes
            slot.storage = self.storages.of(held).number if held.layout is torch.strided else None
            if held.is_leaf and held.requires_grad:
                slot.leaf = self.leaf(held)
        return slot

    def walk(self, roots: Iterable[TorchNode]) -> Graph:
        """Every node reachable from ``roots``, once, without recursion."""
        graph, known, todo = Graph([], [], 0), set(), [root for root in roots if not torch_private.is_gone(root)][::-1]
        while todo:
            node = todo.pop()
            seen = self.see(node)
            if seen.serial in known:
                continue
            known.add(seen.serial)
            graph.nodes.append((seen, node))
            for slot, (parent, index) in enumerate(node.next_functions):
                if parent is not None:
                    graph.edges.append((self.see(parent), seen, index, slot))
                    todo.append(parent)
        return graph

    def read_slots(self, graph: Graph, names: Names, after: tuple[str, int | None, int] | None = None) -> int:
        """Bring the saved slots of ``graph`` up to date, ``after`` (call, line, moment) of a pass or before any.

        Returns the bytes of the distinct storages that they keep alive.
        """
        counted: set[int] = set()
        return sum(self._read(seen, node, counted, names, after) for seen, node in graph.nodes if seen.slots and node)

    def _read(
        self, seen: Seen, node: TorchNode, counted: set[int], names: Names, after: tuple[str, int | None, int] | None
    ) -> int:
        held_now, kept = dict(_held(node)), 0
        for slot in seen.slots:
            held = held_now.get(slot.name)
            if held is None and not slot.freed:
                slot.freed_by = after
            slot.freed = held is None
            if not isinstance(held, torch.Tensor):
                continue
            slot.current_version = torch_private.version(held)
            slot.variable = names.of(held) or slot.variable
            if held.layout is not torch.strided:
                kept += slot.bytes or 0
                continue
            if slot.saved_version is not None and slot.current_version != slot.saved_version:
                slot.changed = self.storages.first_write(held, slot.saved_version)
            slot.view_of = slot.view_of or names.sharing(torch_private.storage_key(held))
            if slot.storage is not None and slot.storage not in counted:
                counted.add(slot.storage)
                kept += slot.storage_bytes or 0
        return kept

    def _next(self) -> int:
        self._serial += 1
        return self._serial


def _held(node: TorchNode) -> list[tuple[str, Any]]:
    """(slot, what it holds) for the filled slots."""
    found = [(name, torch_private.peek(packed)) for name, packed in torch_private.saved_slots(node)]
    if torch_private.is_custom(node):  # what its forward put on ctx without save_for_backward
        for name, value in vars(node).items():
            found += _inside(f"{_ON_CTX}{name}", value)
    return [(name, held) for name, held in found if held is not None]


def _inside(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """``ctx.cache[0]``: the tensors in plain containers, of which looking runs no code of the program."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth < _DEEPEST and type(value) in (list, tuple, dict) and len(value) <= _WIDEST:
        items = value.items() if type(value) is dict else enumerate(value)
        for key, item in items:
            if type(key) in (int, str):
                yield from _inside(f"{name}[{key!r}]", item, depth + 1)


_DEEPEST, _WIDEST = 3, 100
_ON_CTX = "ctx."
