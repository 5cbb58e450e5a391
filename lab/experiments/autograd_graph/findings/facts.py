"""Plain facts about a graph and its passes: what is added, kept, broadcast, recomputed, frozen, cut."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.autograd_graph.findings.in_place import describe_slot
from lab.experiments.autograd_graph.findings.leaves import unused_leaves
from lab.experiments.autograd_graph.findings.record import Record, on_line, site, words
from lab.quantities import bytes_text
from lab.records.graph import Cut, Named, Node, Plain, Step


def used_twice(record: Record) -> Iterator[Finding]:
    nodes = record.nodes
    steps = _last_pass(record)
    received: dict[int, list[tuple[Node, Plain]]] = {}
    for step in steps:
        for parent, given in zip(step.parents, step.given, strict=False):
            received.setdefault(parent, []).append((nodes[step.node], given))
    leaves_first = sorted(received, key=lambda parent: nodes[parent].kind != "leaf")
    for parent in leaves_first:
        parts = received[parent]
        if len(parts) < 2:
            continue
        name = nodes[parent].variables[0] if nodes[parent].variables else nodes[parent].label
        paths = ", ".join(f"{words(given)} through {node.label}" for node, given in parts[:3])
        total = next((step.incoming for step in steps if step.node == parent), None)
        if total is None:
            continue
        text = f"It gets {paths}. The gradients of all paths are added: {words(total)}."
        evidence = {f"through {node.label}, path {i}": words(given) for i, (node, given) in enumerate(parts[:3], 1)}
        title = f"{name} is used {len(parts)} times, so its gradient is a sum"
        yield Finding(
            level="fact", title=title, text=text, evidence={**evidence, "sum": words(total)}, line=nodes[parent].line
        )
        return


def kept(record: Record) -> Iterator[Finding]:
    saved = [(node, s) for node in record.result.nodes for s in node.saved if s.bytes is not None]
    if not record.result.kept_bytes or not saved:
        return
    owner, largest = max(saved, key=lambda pair: pair[1].storage_bytes or 0)
    evidence = {"bytes before backward": record.result.kept_bytes, "bytes at the end": record.result.kept_bytes_after}
    count = f"{len(saved)} tensors" if len(saved) > 1 else "one tensor"
    text = (
        f"For backward the graph keeps {count} in {bytes_text(record.result.kept_bytes)} of memory; the largest is "
        f"{describe_slot(owner, largest)} of {owner.label}, {bytes_text(largest.storage_bytes or 0)}. "
    )
    if record.result.kept_bytes_after == 0:
        yield Finding(
            level="fact",
            title="backward freed what the graph kept",
            text=text + "backward let go of all of it.",
            evidence=evidence,
        )
    elif record.result.kept_bytes_after < record.result.kept_bytes:
        text += f"{bytes_text(record.result.kept_bytes_after)} are still kept."
        yield Finding(level="fact", title="backward freed a part of what the graph kept", text=text, evidence=evidence)
    elif retained := [run for run, _ in record.own_passes() if run.retain_graph and run.by == "program"]:
        asked = "create_graph" if all(run.create_graph for run in retained) else "retain_graph"
        text += f"{asked}=True keeps all of it alive after backward, until the last reference to the result goes."
        yield Finding(
            level="surprise",
            title=f"{asked} keeps the memory",
            text=text,
            evidence=evidence,
            repair=f"Leave {asked} out of a training loop.",
        )
    else:
        text += "They live until backward runs or the result goes."
        yield Finding(level="fact", title="What the graph keeps alive", text=text, evidence=evidence)


def broadcast(record: Record) -> Iterator[Finding]:
    """An operand that was repeated to fit gets its gradient summed back."""
    nodes = record.nodes
    for step in _last_pass(record):
        node = nodes[step.node]
        if node.label not in ("add", "sub", "mul", "div", "pow", "where", "expand"):
            continue
        for parent, given in zip(step.parents, step.given, strict=False):
            small, large = nodes[parent].shape, node.shape
            if small is not None and large is not None and math.prod(small) < math.prod(large):
                times = math.prod(large) // max(math.prod(small), 1)
                name = nodes[parent].variables[0] if nodes[parent].variables else nodes[parent].label
                text = (
                    f"{name} has shape {list(small)} and was repeated to {list(large)}, so each entry was used {times} times. "
                    f"{node.label} sums the gradient back to the shape of {name} and hands on {words(given)}."
                )
                evidence = {"shape": list(small), "repeated to": list(large), "uses of each entry": times}
                yield Finding(
                    level="surprise" if name.isidentifier() and nodes[parent].variables else "fact",
                    title=f"{name} was broadcast: its gradient is a sum",
                    text=text,
                    evidence=evidence,
                    line=node.line,
                )
                return


def order(record: Record) -> Iterator[Finding]:
    names = {node.id: node.name for node in record.all_nodes}
    steps = _last_pass(record)
    if 0 < len(steps) <= 8:
        order = ", then ".join(names[step.node] for step in steps)
        stored = next((step.after for step in reversed(steps) if step.after is not None), None)
        ending = f" The last value stored in a leaf is {words(stored)}." if stored is not None else ""
        text = f"{order}. A node runs when the gradients of all its uses have arrived.{ending}"
        yield Finding(
            level="fact", title="The order in which the engine ran", text=text, evidence={"nodes run": len(steps)}
        )


def recomputed(record: Record) -> Iterator[Finding]:
    marked = [s for node in record.all_nodes for s in node.saved if s.recomputed]
    if marked:
        text = (
            f"{len(marked)} saved tensors are markers: checkpoint threw the values away after the forward, and backward runs "
            "the forward again to get them. Looking at the graph here did not run it."
        )
        yield Finding(
            level="fact",
            title="Recomputed instead of kept",
            text=text,
            evidence={"markers": len(marked), "kept bytes": record.result.kept_bytes},
        )


def frozen(record: Record) -> Iterator[Finding]:
    """Parameters that require no gradients beside some that do. Buffers are no parameters."""
    parameters = [t for t in record.result.tensors if t.is_parameter and t.is_leaf and _is_float(t)]
    frozen = [t for t in parameters if not t.requires_grad]
    if frozen and len(frozen) < len(parameters):
        text = (
            f"{len(frozen)} of {len(parameters)} parameters do not require gradients. They have no node in the "
            f"graph, and backward ran {len(_last_pass(record))} nodes without computing anything for them."
        )
        evidence = {"frozen": len(frozen), "nodes run": len(_last_pass(record))}
        yield Finding(level="fact", title="Frozen parameters are not in the graph", text=text, evidence=evidence)


def cut(record: Record) -> Iterator[Finding]:
    """A cut on the way to a loss. Whether it is meant the record does not say: a leaf that it costs its whole gradient has a
    finding of its own."""
    why = {
        "detach": "gives a tensor with the same values and no history",
        "no_grad": "ran with gradients switched off, so its result is a constant for autograd",
        "inference_mode": "ran in inference mode, so its result is a constant for autograd",
        "copy": "copies the values and leaves the history behind",
    }
    for cut in record.result.cuts:
        if cut.reason in why and cut.reaches and not record.result.no_graph and not _told_by_its_leaf(record, cut):
            target = f" ({cut.target})" if cut.target else ""
            text = f"{cut.operation}{on_line(cut.line)} {why[cut.reason]}. No gradient flows through it{target}."
            evidence = {"operation": cut.operation, "from": cut.source or "a result", "to": cut.target or "a result"}
            sites = site(cut.line, "cut here", cut.source or cut.target)
            off = [m.line for m in record.result.modes if not m.enabled and m.line and cut.line and m.line <= cut.line]
            if cut.reason == "no_grad" and off and max(off) != cut.line:
                sites += site(max(off), "gradients off from here")
            yield Finding(
                level="fact",
                title=f"{cut.operation} cuts the graph",
                text=text,
                evidence=evidence,
                line=cut.line,
                sites=sites,
            )
            return


def _told_by_its_leaf(record: Record, cut: Cut) -> bool:
    return any(s.role == "cut here" and s.line == cut.line for f in unused_leaves(record) for s in f.sites)


def custom(record: Record) -> Iterator[Finding]:
    """Functions of the program, not those of torch such as the node of a full backward hook."""
    own = {c.node for c in record.result.custom if c.by_program}
    custom = [node for node in record.result.nodes if node.kind == "custom" and node.name in own]
    if custom:
        counted = Counter(node.name for node in custom)
        text = (
            f"{', '.join(counted)} runs Python code that the program wrote. torch takes what it returns as the gradient and "
            "does not check it."
        )
        repair = "Check it in float64: torch.autograd.gradcheck(Function.apply, inputs)."
        yield Finding(
            level="fact",
            title="A derivative written by hand",
            text=text,
            evidence=dict(counted),
            line=custom[0].line,
            repair=repair,
        )


def by_lab(record: Record) -> Iterator[Finding]:
    if any(run.by == "lab" and not run.error for run in record.result.passes):
        text = (
            f"The program did not call backward, so it was called on {record.result.root} here, to show the gradients."
        )
        yield Finding(
            level="fact", title="backward was run for you", text=text, evidence={"steps": len(_last_pass(record))}
        )


def _is_float(tensor: Named) -> bool:
    return "float" in tensor.dtype or "complex" in tensor.dtype


def _last_pass(record: Record) -> tuple[Step, ...]:
    """Steps of the last pass that the program asked for itself."""
    own = record.own_passes()
    return own[-1][1] if own else ()


def slow_path(record: Record) -> Iterator[Finding]:
    """Where looking changed which code ran."""
    names = ", ".join(record.result.without_fast_path)
    if names:
        text = (
            f"{names} in evaluation without gradients run{'s' if len(record.result.without_fast_path) == 1 else ''} one fused operation. torch switches that off "
            "while every operation is watched, so here the separate operations ran: the same result up to rounding, in another time."
        )
        yield Finding(level="fact", title="Watched, so not on the fast path", text=text, evidence={"modules": names})
