"""One run of the backward engine, node by node, in the order in which the engine ran them.

A pre-hook on a node sees the gradient that arrived, summed over all paths and after every tensor hook; a post-hook sees
what the node hands to each parent. Both only look. A node that raises leaves a step without ``given``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch.autograd.graph import Node as TorchNode

from lab import torch_private
from lab.instruments.describing.values import SMALL, is_readable, quiet_grad, tensor_value
from lab.instruments.graph.book import Graph, Seen
from lab.instruments.graph.formula_rules import INPUTS, PLAIN, has_rules
from lab.instruments.graph.formulas import MOST_ELEMENTS, as_number, formula
from lab.records.graph import Plain

MOST_STEPS = 20_000
_FORMULA_STEPS = 200
_WHOLE_VALUES = 500
"""Steps beyond this keep only scalars, so that a long chain stays small."""
_LEAF_ELEMENTS = 256
_CLAMPS = ("Clamp", "Hardtanh")


@dataclass(eq=False, slots=True)
class SeenStep:
    seen: Seen
    incoming: Plain
    given: tuple[Plain, ...] = ()
    parents: tuple[Seen, ...] = ()
    before: Plain = None
    after: Plain = None
    stopped: int | None = None
    """Elements of a clamp to which a gradient came and which handed on none."""
    formulas: tuple[str, ...] = ()
    """The derivative for each parent with its numbers put in; empty where none was found that holds."""


class BackwardTrace:
    """Context manager around one call of the engine on a walked graph. Read ``steps`` and ``cut`` afterwards.

    ``own_look`` gives the context manager in which a hook looks: it keeps a fault of ours out of the engine.
    """

    def __init__(self, graph: Graph, own_look: Callable[[], AbstractContextManager[Any]]) -> None:
        self.steps: list[SeenStep] = []
        self.cut = 0
        self._graph, self._own_look = graph, own_look
        self._open: dict[int, SeenStep] = {}
        self._operands: dict[int, dict[str, Any]] = {}
        self._handles: list[Any] = []
        self._parents: dict[int, list[tuple[int, Seen]]] = {}

    def __enter__(self) -> BackwardTrace:
        for source, target, _, slot in self._graph.edges:
            self._parents.setdefault(target.serial, []).append((slot, source))
        for seen, node in self._graph.nodes:
            if node is not None:
                self._hook(seen, node)
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, seen: Seen, node: TorchNode) -> None:
        def arrive(grads: tuple[torch.Tensor | None, ...]) -> None:
            with self._own_look():
                self._arrive(seen, grads)
                if len(self.steps) <= _FORMULA_STEPS and has_rules(seen.name) and grads and _is_small(grads[0]):
                    self._operands[seen.serial] = _operands(node) | {"grad": as_number(grads[0])}

        def hand_on(given: tuple[torch.Tensor | None, ...], grads: tuple[torch.Tensor | None, ...]) -> None:
            with self._own_look():
                self._hand_on(seen, given)
                self._count_stopped(seen, given, grads)

        self._handles += [node.register_prehook(arrive), node.register_hook(hand_on)]

    def _arrive(self, seen: Seen, grads: tuple[torch.Tensor | None, ...]) -> None:
        if len(self.steps) >= MOST_STEPS:
            self.cut += 1
            return
        incoming = [self._value(g, seen) for g in grads]
        step = SeenStep(seen, incoming if seen.outputs > 1 else incoming[0] if incoming else None)
        if seen.kind == "leaf":
            step.before = self._leaf_grad(seen)
        else:
            seen.grad = step.incoming
        self.steps.append(step)
        self._open[seen.serial] = step

    def _hand_on(self, seen: Seen, given: tuple[torch.Tensor | None, ...]) -> None:
        step = self._open.get(seen.serial)
        if step is None:
            return
        if seen.kind == "leaf":
            step.after = self._leaf_grad(seen)
            return
        parents = sorted(self._parents.get(seen.serial, ()), key=lambda p: p[0])
        step.parents = tuple(parent for _, parent in parents)
        step.given = tuple(self._value(given[slot], seen) if slot < len(given) else None for slot, _ in parents)
        operands = self._operands.pop(seen.serial, None)
        if operands is not None:
            names = {s.name: s.leaf.label if s.leaf else s.variable or "" for s in seen.slots}
            inputs = INPUTS.get(seen.name, _SLOTS)
            names |= {inputs[slot]: _name(parent) for slot, parent in parents if slot < len(inputs)}
            names["result"] = _name(seen)
            operands["shapes"] = [None if g is None else tuple(g.shape) for g in given]
            step.formulas = tuple(
                formula(seen.name, slot, _name(parent), names, operands, part) if _is_small(part) else ""
                for slot, parent in parents
                for part in given[slot : slot + 1]
            )

    def _count_stopped(
        self, seen: Seen, given: tuple[torch.Tensor | None, ...], grads: tuple[torch.Tensor | None, ...]
    ) -> None:
        step = self._open.pop(seen.serial, None)
        if step is None or not seen.name.startswith(_CLAMPS) or not given or not grads:
            return
        arrived, handed_on = grads[0], given[0]
        if arrived is not None and handed_on is not None and is_readable(arrived) and is_readable(handed_on):
            step.stopped = int(((arrived.detach() != 0) & (handed_on.detach() == 0)).sum())

    def _value(self, tensor: torch.Tensor | None, seen: Seen) -> Plain:
        largest = _LEAF_ELEMENTS if seen.kind == "leaf" else SMALL
        return tensor_value(tensor, largest=largest if len(self.steps) < _WHOLE_VALUES else 1)

    def _leaf_grad(self, seen: Seen) -> Plain:
        tensor = seen.variable() if seen.variable else None
        return None if tensor is None else self._value(quiet_grad(tensor), seen)


_SLOTS = ("self", "other")


def _name(seen: Seen) -> str:
    return seen.variables[0] if seen.variables else seen.label


def _is_small(tensor: torch.Tensor | None, any_type: bool = False) -> TypeGuard[torch.Tensor]:
    small = tensor is not None and tensor.numel() <= MOST_ELEMENTS and is_readable(tensor)
    return small and (any_type or (tensor is not None and tensor.is_floating_point()))


def _operands(node: TorchNode) -> dict[str, Any]:
    """Small saved tensors, read packed, and the plain numbers that ``node`` keeps."""
    tensors = {name: torch_private.peek(packed) for name, packed in torch_private.saved_slots(node)}
    small = {k: _number(t) for k, t in tensors.items() if isinstance(t, torch.Tensor) and _is_small(t, any_type=True)}
    found = {name: getattr(node, f"_saved_{name}", None) for name in PLAIN if name not in tensors}
    return small | {name: _signed(value) for name, value in found.items() if value is not None}


def _number(tensor: torch.Tensor) -> torch.Tensor:
    return as_number(tensor) if tensor.is_floating_point() else tensor.detach().cpu().clone()


def _signed(value: Any) -> Any:
    """Negative dims are kept as unsigned numbers."""
    if isinstance(value, (tuple, list)):
        return tuple(_signed(v) for v in value)
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value
