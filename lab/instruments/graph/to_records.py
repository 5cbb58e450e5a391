"""From what was seen to plain records: numbering, names, and the graph of one root with its backward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from lab.instruments.describing.values import SMALL, dtype_name, quiet_grad, shape_of, tensor_value
from lab.instruments.graph.backward_trace import SeenStep
from lab.instruments.graph.book import Graph, Seen, Slot
from lab.instruments.graph.engine_calls import SeenPass
from lab.instruments.graph.program_trace import ProgramTrace
from lab.instruments.graph.tensor_log import State
from lab.records.graph import Cut, Edge, Leaf, Named, Node, Pass, Saved, Step

_GRAD_ELEMENTS = 1 << 15
"""Elements of leaf gradients that one result holds whole: a graph of few leaves has room for large ones."""


class Numbering:
    """Ids of nodes within one result: the nodes of the main graph first, in the order in which they were born."""

    def __init__(self, graph: Graph) -> None:
        self.main = sorted({seen.serial: seen for seen, _ in graph.nodes}.values(), key=lambda seen: seen.serial)
        self._ids = {seen.serial: i for i, seen in enumerate(self.main)}
        self._main_count = len(self.main)
        self.root = graph.nodes[0][0] if graph.nodes else None

    def id(self, seen: Seen) -> int:
        return self._ids.setdefault(seen.serial, len(self._ids))

    def root_id(self) -> int | None:
        return self.id(self.root) if self.root else None

    def is_main(self, seen: Seen) -> bool:
        return self.id(seen) < self._main_count

    def node(self, seen: Seen) -> Node:
        kind = "output" if seen is self.root and seen.kind in ("function", "view") else seen.kind
        return Node(
            id=self.id(seen),
            name=seen.name,
            kind=kind,
            label=seen.label,
            variables=tuple(seen.variables),
            shape=seen.shape,
            dtype=seen.dtype,
            device=seen.device,
            line=seen.line,
            module=seen.module,
            value=_leaf_value(seen) if seen.kind == "leaf" else _made_value(seen),
            grad=_leaf_grad(seen, SMALL) if seen.kind == "leaf" else seen.grad,
            saved=tuple(_saved(slot, seen) for slot in seen.slots),
            moment=seen.state.maker.number if seen.state is not None and seen.state.maker else None,
            state=seen.state.number if seen.state is not None else None,
        )

    def edges(self, graph: Graph, *, extra_only: bool = False) -> tuple[Edge, ...]:
        found = (
            Edge(self.id(source), self.id(target), index, slot)
            for source, target, index, slot in graph.edges
            if not (extra_only and self.is_main(target))
        )
        return tuple(sorted(found, key=lambda e: (e.target, e.slot)))

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.node(seen) for seen in self.main)

    def leaves(self) -> tuple[Leaf, ...]:
        leaves = [seen for seen in self.main if seen.kind == "leaf"]
        each = max(SMALL, _GRAD_ELEMENTS // max(len(leaves), 1) // 8)
        return tuple(Leaf(seen.label, seen.shape or (), _leaf_grad(seen, each), self.id(seen)) for seen in leaves)

    def step(self, step: SeenStep) -> Step:
        parents = tuple(self.id(parent) for parent in step.parents)
        return Step(
            self.id(step.seen),
            step.incoming,
            step.given,
            parents,
            step.before,
            step.after,
            step.stopped,
            step.formulas,
        )

    def backward_pass(self, seen: SeenPass, name: Callable[[State], str]) -> Pass:
        extra = [node for node, _ in seen.graph.nodes if not self.is_main(node)]
        return Pass(
            call=seen.call,
            by="lab" if seen.by_lab else "program",
            line=seen.line,
            root=self.id(seen.root) if seen.root else None,
            retain_graph=seen.retain_graph,
            create_graph=seen.create_graph,
            kept_bytes=seen.graph.kept_bytes,
            kept_bytes_after=seen.kept_bytes_after,
            nodes=tuple(self.node(node) for node in extra),
            edges=self.edges(seen.graph, extra_only=True),
            steps_cut=seen.steps_cut,
            error=seen.error,
            inputs=None if seen.inputs is None else tuple(name(state) for state in seen.inputs),
            moment=seen.moment,
            roots=tuple(state.number for state in seen.roots),
            input_states=tuple(state.number for state in seen.inputs or ()),
            caller=seen.caller,
            length=len(seen.graph.nodes),
        )


def _saved(slot: Slot, owner: Seen) -> Saved:
    line, operation = slot.changed or (None, "")
    own_output = slot.name.startswith("result") and slot.view_of in owner.variables  # torch keeps it as a twin
    variable = slot.variable or (slot.view_of if own_output else None)
    return Saved(
        slot=slot.name,
        shape=slot.shape,
        dtype=slot.dtype,
        bytes=slot.bytes,
        storage_bytes=slot.storage_bytes,
        storage=slot.storage,
        saved_version=slot.saved_version,
        current_version=slot.current_version,
        leaf=slot.leaf.label if slot.leaf else None,
        variable=variable,
        view_of=None if variable or slot.leaf else slot.view_of or None,
        freed=slot.freed,
        recomputed=slot.recomputed,
        changed_line=line,
        changed_by=operation,
        freed_line=slot.freed_by[1] if slot.freed_by else None,
        freed_moment=slot.freed_by[2] if slot.freed_by else None,
        freed_by=slot.freed_by[0] if slot.freed_by else "",
    )


def _leaf_value(seen: Seen) -> object:
    tensor = seen.variable() if seen.variable else None
    return None if tensor is None else tensor_value(tensor)


def _made_value(seen: Seen) -> object:
    return seen.state.value if seen.state is not None else seen.value


def _leaf_grad(seen: Seen, largest: int) -> object:
    tensor = seen.variable() if seen.variable else None
    return None if tensor is None else tensor_value(quiet_grad(tensor), largest=largest)


def named_records(trace: ProgramTrace, numbering: Numbering, most: int = 500) -> tuple[Named, ...]:
    """Tensors that the program has a name for, each once under its first name."""
    found: dict[int, Named] = {}
    for name, tensor in trace.named():
        if id(tensor) in found or len(found) >= most:
            continue
        seen = trace.seen(tensor)
        found[id(tensor)] = Named(
            name=name,
            shape=shape_of(tensor) or (),
            dtype=dtype_name(tensor.dtype),
            device=str(tensor.device),
            requires_grad=tensor.requires_grad,
            is_leaf=tensor.is_leaf,
            grad=tensor_value(quiet_grad(tensor)),
            node=numbering.id(seen) if seen and numbering.is_main(seen) else None,
            grad_fn=type(tensor.grad_fn).__name__ if tensor.grad_fn is not None else "",
            line=seen.line if seen else None,
            is_parameter=isinstance(tensor, torch.nn.Parameter),
        )
    return tuple(found.values())


def cut_records(trace: ProgramTrace, reaches: Callable[[State], bool]) -> tuple[Cut, ...]:
    """Places where a result lost its graph."""
    names = trace.names()
    return tuple(
        Cut(
            cut.operation,
            cut.reason,
            cut.line,
            cut.source_name,
            names.of_id(cut.target),
            cut.module,
            cut.state is not None and reaches(cut.state),
            cut.number,
            cut.state.number if cut.state else None,
            cut.source.number if cut.source else None,
        )
        for cut in trace.cuts.kept.values()
    )


def pass_records(
    numbering: Numbering, passes: Iterable[SeenPass], name: Callable[[State], str]
) -> tuple[tuple[Pass, ...], tuple[tuple[Step, ...], ...]]:
    """What belongs to each pass, and the steps of each pass."""
    seen = list(passes)
    return (
        tuple(numbering.backward_pass(p, name) for p in seen),
        tuple(tuple(numbering.step(step) for step in p.steps) for p in seen),
    )
