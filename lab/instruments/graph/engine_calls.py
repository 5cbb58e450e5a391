"""Calls of the backward engine: ``Tensor.backward``, ``torch.autograd.backward``, ``torch.autograd.grad``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from lab import torch_private
from lab.instruments.graph.backward_trace import BackwardTrace, SeenStep
from lab.instruments.graph.book import Graph, Seen
from lab.instruments.graph.tensor_log import State

CALLS: dict[Any, str] = {
    torch.Tensor.backward: "backward",
    torch.autograd.backward: "torch.autograd.backward",
    torch.autograd.grad: "torch.autograd.grad",
}
KEPT_PASSES = 20
"""A training loop keeps its last passes; the earlier ones are counted."""


@dataclass(eq=False, slots=True)
class SeenPass:
    """One run of the engine: its graph as walked just before, and its steps."""

    call: str
    by_lab: bool
    line: int | None
    graph: Graph
    retain_graph: bool
    create_graph: bool
    kept_bytes_after: int = 0
    steps: list[SeenStep] = field(default_factory=list)
    steps_cut: int = 0
    error: str = ""
    moment: int = 0
    """Operations that had run before it."""
    roots: tuple[State, ...] = ()
    """Tensors that the call was given to start from."""
    inputs: tuple[State, ...] | None = None
    """Tensors that the call was asked about; None when it fills the leaves."""
    caller: str = ""
    """Library function that called the engine for the program."""

    @property
    def root(self) -> Seen | None:
        return self.graph.nodes[0][0] if self.graph.nodes else None


class PassLog:
    """The last ``KEPT_PASSES`` passes in ``kept``; ``cut`` counts those before."""

    def __init__(self, own_look: Callable[[], AbstractContextManager[Any]]) -> None:
        self._own_look = own_look
        self.kept: deque[SeenPass] = deque(maxlen=KEPT_PASSES)
        self.cut = 0

    def run(self, opened: SeenPass, engine: Callable[[], Any]) -> Any:
        """Call the engine with every node of the graph hooked. Raises what the engine raises."""
        self.cut += len(self.kept) == KEPT_PASSES
        self.kept.append(opened)
        trace = BackwardTrace(opened.graph, self._own_look)
        try:
            with trace:
                return engine()
        except BaseException as error:
            opened.error = str(error)[:2000]
            raise
        finally:
            opened.steps, opened.steps_cut = trace.steps, trace.cut


def arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[GradientEdge], bool, bool]:
    """(edges to start from, retain_graph, create_graph) of a call."""
    roots = args[0] if args else kwargs.get("outputs", kwargs.get("tensors"))
    at = 3 if func is torch.autograd.grad else 2  # position of retain_graph; create_graph follows
    retain = kwargs.get("retain_graph", args[at] if len(args) > at else None)
    create = bool(kwargs.get("create_graph", args[at + 1] if len(args) > at + 1 else False))
    return list(edges(roots)), create if retain is None else bool(retain), create


def tensors_of(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor] | None]:
    """(tensors that a call starts from, tensors that it was asked about) where they are tensors."""
    roots = args[0] if args else kwargs.get("outputs", kwargs.get("tensors"))
    inputs = kwargs.get("inputs", args[1] if func is torch.autograd.grad and len(args) > 1 else None)
    return _flat(roots), None if inputs is None else _flat(inputs)


def _flat(value: Any) -> list[torch.Tensor]:
    many = value if isinstance(value, (list, tuple)) and not isinstance(value, GradientEdge) else [value]
    return [v for v in many if isinstance(v, torch.Tensor) and not torch_private.is_wrapped(v)]


def edges(roots: Any) -> Iterator[GradientEdge]:
    """Where a call of the engine starts: the roots that have a graph of this program."""
    many = isinstance(roots, (list, tuple)) and not isinstance(roots, GradientEdge)  # an edge is a tuple itself
    for root in roots if many else [roots]:
        if isinstance(root, GradientEdge):
            yield root
        elif isinstance(root, torch.Tensor) and root.requires_grad and not torch_private.is_wrapped(root):
            yield get_gradient_edge(root)
