"""Run the program and read what autograd holds."""

from __future__ import annotations

import gc
import math
import time

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from lab.contract import Report
from lab.experiments.autograd_graph.classic import classic_dot
from lab.experiments.autograd_graph.faults import fault_of
from lab.experiments.autograd_graph.schema import Params, Result
from lab.instruments.graph.book import Graph
from lab.instruments.graph.program_trace import ProgramTrace
from lab.instruments.graph.to_records import Numbering, cut_records, named_records, pass_records
from lab.program import run as program
from lab.records.graph import Node
from lab.torch_private import require

NEEDED = (
    *("saved tensors", "versions", "node records", "checkpoint markers", "storages", "custom functions", "data reads"),
    *("quiet subclasses", "function transforms", "mode stacks", "engine runs"),
)


def run(params: Params, report: Report) -> Result:
    """Run the program once and return what autograd recorded. Faults of the program do not raise: they are in ``fault``."""
    require(*NEEDED)
    report(0.0, "running the program")
    names = program.namespace()
    with program.torch_defaults(params.seed, params.device):
        trace = ProgramTrace(program.FILE, names)
        started = time.perf_counter()
        with trace:
            ran = program.run_typed(params, share=0.7, names=names)
        seconds = time.perf_counter() - started
        report(0.5, "reading the graph")
        gc.disable()  # tens of thousands of records, none of them garbage
        try:
            with trace.own_look():
                result = _read(params, trace, ran, seconds)
        finally:
            gc.enable()
        if trace.broken:
            raise RuntimeError("the graph could not be recorded") from trace.broken
        return result


def _read(params: Params, trace: ProgramTrace, ran: program.Ran, seconds: float) -> Result:
    variables = program.variables(ran.namespace)  # before the lab's own backward changes any .grad
    root, no_graph = _choose_root(trace, ran)
    graph = trace.walk([root.node] if root else [])
    kept_bytes_after = graph.kept_bytes
    if root and _wants_backward(trace, graph, ran):
        _run_backward(trace, root, graph)
    numbering = Numbering(graph)
    nodes = numbering.nodes()
    passes, backward = pass_records(numbering, trace.passes.kept)
    classic, no_classic = classic_dot(trace, graph)
    return Result(
        root=_root_name(ran, graph),
        root_node=numbering.root_id(),
        no_graph=no_graph,
        nodes=nodes,
        edges=numbering.edges(graph),
        leaves=numbering.leaves(),
        backward=backward,
        passes=passes,
        passes_cut=trace.passes.cut,
        kept_bytes=_distinct_bytes(nodes),
        kept_bytes_after=kept_bytes_after,
        **ran.said.fields(),
        variables=variables,
        tensors=named_records(trace, numbering),
        cuts=cut_records(trace),
        device=params.device,
        seconds=seconds,
        classic=classic,
        no_classic=no_classic,
        fault=fault_of(ran.ended, [*nodes, *(node for p in passes[-1:] for node in p.nodes)]),
    )


def _distinct_bytes(nodes: tuple[Node, ...]) -> int:
    """Bytes of the distinct storages that the nodes saved, freed since or not."""
    saved = [slot for node in nodes for slot in node.saved]
    storages = {slot.storage: slot.storage_bytes or 0 for slot in saved if slot.storage is not None}
    return sum(storages.values()) + sum(slot.bytes or 0 for slot in saved if slot.storage is None)


def _choose_root(trace: ProgramTrace, ran: program.Ran) -> tuple[GradientEdge | None, str]:
    """The edge to start from, and why ``loss`` is not it or why there is none."""
    loss = ran.namespace.get("loss")
    if isinstance(loss, torch.Tensor):
        if loss.requires_grad:
            return get_gradient_edge(loss), ""
        return trace.last, _no_graph(trace, ran, "loss has no graph")
    return trace.last, "" if trace.last else _no_graph(trace, ran, "There is no graph")


def _wants_backward(trace: ProgramTrace, graph: Graph, ran: program.Ran) -> bool:
    """Whether the program left a scalar on which nothing was differentiated."""
    here = {seen.serial for seen, _ in graph.nodes}
    root = graph.nodes[0][0]
    touched = any(step.seen.serial in here for p in trace.passes.kept for step in p.steps)
    scalar = root.shape is not None and math.prod(root.shape) == 1 and root.outputs == 1
    return ran.ended is None and not touched and scalar


def _run_backward(trace: ProgramTrace, root: GradientEdge, graph: Graph) -> None:
    name = graph.nodes[0][0].variables
    try:
        trace.run_by_lab(root, graph, f"{name[0] if name else 'result'}.backward")
    except Exception:  # noqa: BLE001 - its message is kept in the record of the pass
        return


def _root_name(ran: program.Ran, graph: Graph) -> str:
    if not graph.nodes:
        return ""
    variables = graph.nodes[0][0].variables
    return "loss" if "loss" in variables else variables[0] if variables else "last result"


_REASONS = {
    "detach": "{op} on line {line} gives a tensor without history",
    "no_grad": "line {line} ran with gradients switched off (no_grad)",
    "inference_mode": "line {line} ran in inference mode",
    "integer": "{op} on line {line} gives integers or booleans, which have no derivative",
    "copy": "{op} on line {line} copies the values and leaves the history behind",
    "leaves torch": "{op}() on line {line} gives a plain number, which has no history",
}


def _no_graph(trace: ProgramTrace, ran: program.Ran, what: str) -> str:
    """Why there is no graph, from what was seen."""
    if trace.cuts.kept:
        cut = list(trace.cuts.kept.values())[-1]
        return f"{what}: {_REASONS[cut.reason].format(op=cut.operation, line=cut.line)}."
    if any(tensor.requires_grad for _, tensor in trace.named()):
        return f"{what}: no differentiable operation used a tensor that requires gradients."
    if ran.ended:
        return f"{what}: the program ended before an operation on a tensor that requires gradients."
    return f"{what}: no tensor of the program requires gradients. Create one with requires_grad=True."
