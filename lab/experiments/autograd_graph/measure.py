"""Run the program and read what autograd holds."""

from __future__ import annotations

import gc
import math
import time
from dataclasses import replace

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from lab import torch_private
from lab.contract import Report, knobs
from lab.experiments.autograd_graph.classic import classic_dot
from lab.experiments.autograd_graph.faults import fault_of
from lab.experiments.autograd_graph.findings import candidates
from lab.experiments.autograd_graph.findings.tested import asks_for_backward, errors_of, starts_of
from lab.experiments.autograd_graph.schema import Params, Result
from lab.instruments.describing.assigned import assigned_names
from lab.instruments.describing.names import failed_scopes
from lab.instruments.graph.book import Graph
from lab.instruments.graph.cuts import SeenCut
from lab.instruments.graph.program_trace import ProgramTrace
from lab.instruments.graph.slopes import check_custom, check_steps
from lab.instruments.graph.tensor_log import State
from lab.instruments.graph.to_records import Numbering, cut_records, named_records, pass_records
from lab.instruments.graph.trail import Trail, custom_records, states_behind
from lab.program import run as program
from lab.program.repair import Trial
from lab.records.graph import Node
from lab.records.operations import Checked
from lab.torch_private import require

NEEDED = (
    *("saved tensors", "versions", "node records", "checkpoint markers", "storages", "custom functions", "data reads"),
    *("quiet subclasses", "function transforms", "mode stacks", "engine runs"),
)


_SHARE_OF_ALL = 0.85
"""Of the wall time of a program: what it takes with all trials of its repairs."""


def run(params: Params, report: Report) -> Result:
    """Run the program and return what autograd recorded. Faults of the program do not raise: they are in ``fault``.

    Where the record shows a fault with a repair, the repaired program is run as well.
    """
    started = time.perf_counter()
    result = _run_once(params, report)
    edits = candidates(result)
    if not edits:
        return result
    report(0.8, "trying the repair", result)
    limits = knobs(Params)["code"].program
    assert limits is not None
    trial = Trial(
        params.code,
        seed=params.seed,
        device=params.device,
        asked=asks_for_backward(result),
        errors=errors_of(result),
        starts=starts_of(result),
        seconds_left=lambda: _SHARE_OF_ALL * limits.wall_s - (time.perf_counter() - started),
    )
    return replace(result, repairs=trial.repairs(edits))


def _run_once(params: Params, report: Report) -> Result:
    require(*NEEDED)
    report(0.0, "running the program")
    names = program.namespace()
    with program.torch_defaults(params.seed, params.device):
        trace = ProgramTrace(program.FILE, names)
        started = time.perf_counter()
        with trace:
            ran = program.run_typed(params, share=0.7, names=names)
        seconds = time.perf_counter() - started
        trace.ended_in = failed_scopes(ran.error, program.FILE)
        report(0.5, "reading the graph")
        collects = gc.isenabled()
        gc.disable()  # tens of thousands of records, none of them garbage
        try:
            with trace.own_look():
                result = _read(params, trace, ran, seconds)
        finally:
            if collects:
                gc.enable()
        if trace.broken:
            raise RuntimeError("the graph could not be recorded") from trace.broken
        return result


def _read(params: Params, trace: ProgramTrace, ran: program.Ran, seconds: float) -> Result:
    variables = program.variables(ran.namespace)  # before the lab's own backward changes any .grad
    root, no_graph = _choose_root(trace, ran)
    graph = trace.walk([root.node]) if root else _last_walked(trace)
    kept_bytes_after = graph.kept_bytes if root else 0
    if root and _wants_backward(trace, graph, ran):
        _run_backward(trace, root, graph)
    numbering = Numbering(graph)
    nodes = numbering.nodes()
    trail, loss = _trail(params, trace, ran, numbering)
    passes, backward = pass_records(numbering, trace.passes.kept, trail.name)
    classic, no_classic = classic_dot(trace, graph)
    result = Result(
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
        cuts=cut_records(trace, trail.reaches),
        device=params.device,
        seconds=seconds,
        classic=classic,
        no_classic=no_classic,
        fault=None,
        code=params.code,
        loss_state=loss.number if loss else None,
        made=trail.made(),
        refused=trail.refused(),
        written=trail.written(),
        nonfinite=trail.nonfinite(),
        hooks=trail.hooks(),
        steps=trail.steps(),
        cleared=trail.cleared(),
        modes=trail.modes(),
        custom=custom_records(trace.custom_classes, program.FILE),
        asks_for_gradients=trace.asks_for_gradients(),
        checked=_checked(trace),
        without_fast_path=tuple(trace.without_fast_path()),
    )
    return replace(result, fault=fault_of(ran.ended, result))


def _trail(params: Params, trace: ProgramTrace, ran: program.Ran, numbering: Numbering) -> tuple[Trail, State | None]:
    """The way to losses, to what was refused and to NaN; and the content of the loss."""
    trail = Trail(trace, assigned_names(params.code), numbering)
    tensor = ran.namespace.get("loss")
    tensor = tensor if isinstance(tensor, torch.Tensor) else trace.last()
    loss = trace.recorder.tensors.state(tensor) if tensor is not None and not torch_private.is_wrapped(tensor) else None
    roots = [state for p in trace.passes.kept for state in p.roots]
    trail.reach([*roots, *([loss] if loss else [])])
    events = trace.recorder.events
    trail.want(trace.recorder.tensors.state(t) for _, t in trace.named() if t.is_inference())
    refused = [operand.state for r in events.refusals for operand in r.operands]
    nonfinite = [seen.state for seen in trace.recorder.nonfinite.kept]
    asked = [state for p in trace.passes.kept for state in p.inputs or ()]
    trail.want(trace.recorder.tensors.numbered(refused))
    trail.want([*([loss] if loss else []), *nonfinite, *roots[-40:], *asked[-40:]])
    trail.want(hook.state for hook in events.hooks[-20:])
    cuts = [state for cut in trace.cuts.kept.values() for state in (cut.state, cut.source) if state is not None]
    trail.want(cuts[-40:])
    spoken = [state for _, state in trace.spoken.values() if state.is_leaf or state.maker is not None]
    trail.want(spoken[-60:])
    results = [t for _, t in trace.named() if t.requires_grad and not t.is_leaf]
    trail.want(trace.recorder.tensors.state(t) for t in results[:20])
    return trail, loss


def _checked(trace: ProgramTrace) -> tuple[Checked, ...]:
    """Derivatives beside differences in float64, where they differ from each other or from them."""
    own = [(cls, call) for cls, call in trace.applied if cls.__module__ == "__main__"]
    second = any(p.create_graph for p in trace.passes.kept)
    found = [*check_custom(own, second=second), *check_steps(list(trace.passes.kept))]
    return tuple(c for c in found if not _agree(c))


def _agree(c: Checked) -> bool:
    numbers = (c.engine, c.left, c.right)
    return all(map(math.isfinite, numbers)) and max(numbers) - min(numbers) <= 1e-3 * max(
        map(abs, numbers), default=0.0
    )


def _last_walked(trace: ProgramTrace) -> Graph:
    """The graph of the last pass, as walked before it, for a program that let go of it."""
    return trace.passes.kept[-1].graph if trace.passes.kept else Graph([], [], 0)


def _distinct_bytes(nodes: tuple[Node, ...]) -> int:
    """Bytes of the distinct storages that the nodes saved, freed since or not."""
    saved = [slot for node in nodes for slot in node.saved]
    storages = {slot.storage: slot.storage_bytes or 0 for slot in saved if slot.storage is not None}
    return sum(storages.values()) + sum(slot.bytes or 0 for slot in saved if slot.storage is None)


def _choose_root(trace: ProgramTrace, ran: program.Ran) -> tuple[GradientEdge | None, str]:
    """The edge to start from, and why ``loss`` is not it or why there is none."""
    loss, newest = ran.namespace.get("loss"), trace.last()
    last = get_gradient_edge(newest) if newest is not None and newest.requires_grad else None
    if isinstance(loss, torch.Tensor):
        if loss.requires_grad:
            return get_gradient_edge(loss), ""
        return last, _no_graph(trace, ran, "loss has no graph")
    return last, "" if last or trace.passes.kept else _no_graph(trace, ran, "There is no graph")


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


def _cut_on_the_way(trace: ProgramTrace, ran: program.Ran) -> SeenCut:
    """The cut nearest to the loss among those that it was made from, else the last one."""
    cuts = list(trace.cuts.kept.values())
    loss = ran.namespace.get("loss")
    if isinstance(loss, torch.Tensor) and not torch_private.is_wrapped(loss):
        behind = {state.number: i for i, state in enumerate(states_behind([trace.recorder.tensors.state(loss)], 5000))}
        nearest = [cut for cut in cuts if cut.state is not None and cut.state.number in behind]
        if nearest:
            return min(nearest, key=lambda cut: behind[cut.state.number] if cut.state else 0)
    return cuts[-1]


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
        cut = _cut_on_the_way(trace, ran)
        return f"{what}: {_REASONS[cut.reason].format(op=cut.operation, line=cut.line)}."
    if any(tensor.requires_grad for _, tensor in trace.named()):
        return f"{what}: no differentiable operation used a tensor that requires gradients."
    if ran.ended:
        return f"{what}: the program ended before an operation on a tensor that requires gradients."
    return f"{what}: no tensor of the program requires gradients. Create one with requires_grad=True."
