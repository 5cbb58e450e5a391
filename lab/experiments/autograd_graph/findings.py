"""What to notice in a graph, computed from the result: faults first, then what surprises, then plain facts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from lab.contract import Finding, by_level
from lab.experiments.autograd_graph.faults import describe_slot, explanation_of, overwritten_slots
from lab.experiments.autograd_graph.schema import Result
from lab.quantities import bytes_text, number_text
from lab.records.graph import Named, Node, Plain, Step

MOST = 5


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST`` things to notice, the most important first."""
    found = [finding for look in _LOOKS for finding in look(result)]
    return tuple(by_level(found)[:MOST])


def _faults(result: Result) -> Iterator[Finding]:
    fault = result.fault
    if fault:
        where = f" on line {fault.line}" if fault.line else ""
        evidence = _versions(result) if "inplace operation" in fault.message else {"message": _short(fault.message)}
        text = fault.explanation or _short(fault.message)
        yield Finding(
            level="fault",
            title=f"{fault.type}{where}",
            text=text,
            evidence=evidence,
            line=fault.line,
            repair=fault.repair,
        )
    for number, run in enumerate(result.passes, 1):
        if run.error and run.by == "lab":
            explanation, repair = explanation_of("RuntimeError", run.error, result.nodes)
            evidence = _versions(result) or {"pass": number}
            line = next((s.changed_line for _, s in overwritten_slots(result.nodes)), None)
            title = f"backward from {result.root} would fail"
            yield Finding(
                level="fault",
                title=title,
                text=explanation or _short(run.error),
                evidence=evidence,
                line=line,
                repair=repair,
            )


def _versions(result: Result) -> dict[str, Any]:
    for node, saved in overwritten_slots(_all_nodes(result)):
        return {
            "node": node.name,
            "saved tensor": describe_slot(node, saved),
            "version when saved": saved.saved_version,
            "version at backward": saved.current_version,
        }
    return {}


def _no_graph(result: Result) -> Iterator[Finding]:
    if result.no_graph and not (result.fault and "does not require grad" in result.fault.message):
        line = result.cuts[-1].line if result.cuts else None
        repair = "Keep the tensor itself on the way to the loss." if line else "Set requires_grad=True on a leaf."
        yield Finding(
            level="warning",
            title="No graph",
            text=result.no_graph,
            evidence={"nodes": len(result.nodes)},
            line=line,
            repair=repair,
        )


def _first_nonfinite(result: Result) -> Iterator[Finding]:
    """The first node of the last pass that turned finite gradients into NaN or infinity."""
    nodes = {node.id: node for node in _all_nodes(result)}
    for step in _last_pass(result):
        if not _finite(step.incoming) or all(map(_finite, step.given)):
            continue
        node = nodes[step.node]
        bad = next(given for given in step.given if not _finite(given))
        text = (
            f"{node.label} received {_words(step.incoming)} and handed on {_words(bad)}: its derivative at this point is "
            "not finite, and 0 times infinity is NaN. Masking the output with where() does not mask the derivative."
        )
        repair = "Make the input of this operation safe (clamp it, or where() before it), not its output."
        evidence = {"incoming": _words(step.incoming), "handed on": _words(bad)}
        yield Finding(
            level="warning",
            title=f"The first non-finite gradient comes from {node.label}",
            text=text,
            evidence=evidence,
            line=node.line,
            repair=repair,
        )
        return


def _zero_slope(result: Result) -> Iterator[Finding]:
    nodes = {node.id: node for node in _all_nodes(result)}
    for step in _last_pass(result):
        node = nodes[step.node]
        stopped = step.given and all(_is_zero(given) for given in step.given)
        if stopped and not _is_zero(step.incoming) and _finite(step.incoming):
            text = (
                f"A gradient of {_words(step.incoming)} arrives and 0 goes on: the derivative of {node.label} is zero here. "
                "Nothing behind it will learn, and no error says so. That is different from a missing graph."
            )
            repair = "Use a function with a slope, or a custom Function that passes the gradient straight through."
            evidence = {"incoming": _words(step.incoming), "handed on": 0.0}
            yield Finding(
                level="surprise",
                title=f"{node.label} hands on zero",
                text=text,
                evidence=evidence,
                line=node.line,
                repair=repair,
            )
            return


def _missing_gradients(result: Result) -> Iterator[Finding]:
    """Leaves that require gradients and got none although a backward pass ran."""
    if not any(run.by == "program" and not run.error for run in result.passes) or result.fault:
        return
    used = {name for node in _all_nodes(result) if node.kind == "leaf" for name in node.variables}
    unused = [t for t in result.tensors if t.requires_grad and t.is_leaf and t.name not in used]
    missing = [t for t in unused if t.grad is None]
    if missing and "torch.autograd.grad" not in {run.call for run in result.passes}:
        names = ", ".join(t.name for t in missing[:4]) + ("…" if len(missing) > 4 else "")
        text = f"{names} require{'s' if len(missing) == 1 else ''} gradients, but no operation on the way to the result used them, so .grad stays None."
        repair = "Use the tensor in the loss, or leave it out of the optimizer."
        evidence = {"leaves without a gradient": len(missing)}
        yield Finding(
            level="warning",
            title=f"{names}: .grad is None",
            text=text,
            evidence=evidence,
            line=missing[0].line,
            repair=repair,
        )
    asked = next((w for w in result.warned if "not a leaf Tensor" in w.text), None)
    if asked:
        text = "The gradient passed through, but .grad is filled for leaves only. Reading it from a result gives None and a warning."
        repair = "Call retain_grad() on the tensor before backward."
        evidence = {"results without .grad": sum(not t.is_leaf for t in result.tensors)}
        yield Finding(
            level="surprise",
            title=".grad of a result is None",
            text=text,
            evidence=evidence,
            line=asked.line,
            repair=repair,
        )


def _accumulated(result: Result) -> Iterator[Finding]:
    labels = {node.id: node.label for node in _all_nodes(result)}
    for steps in result.backward[1:]:
        for step in steps:
            if step.before is not None and step.after is not None and not _is_zero(step.before):
                name = labels[step.node]
                text = (
                    f"{name}.grad was {_words(step.before)}; this pass added {_words(step.incoming)}, so it is "
                    f"{_words(step.after)} now. backward adds to .grad, it never replaces it."
                )
                evidence = {"before": _words(step.before), "added": _words(step.incoming), "after": _words(step.after)}
                repair = f"Clear it between steps: optimizer.zero_grad(), or {name}.grad = None."
                yield Finding(
                    level="surprise",
                    title=f"{name}.grad is a sum over backward passes",
                    text=text,
                    evidence=evidence,
                    repair=repair,
                )
                return


def _used_twice(result: Result) -> Iterator[Finding]:
    nodes = {node.id: node for node in _all_nodes(result)}
    steps = _last_pass(result)
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
        paths = ", ".join(f"{_words(given)} through {node.label}" for node, given in parts[:3])
        total = next((step.incoming for step in steps if step.node == parent), None)
        text = f"It gets {paths}. The gradients of all paths are added: {_words(total)}."
        evidence = {f"through {node.label}, path {i}": _words(given) for i, (node, given) in enumerate(parts[:3], 1)}
        title = f"{name} is used {len(parts)} times, so its gradient is a sum"
        yield Finding(
            level="fact", title=title, text=text, evidence={**evidence, "sum": _words(total)}, line=nodes[parent].line
        )
        return


def _kept(result: Result) -> Iterator[Finding]:
    saved = [(node, s) for node in result.nodes for s in node.saved if s.bytes is not None]
    if not result.kept_bytes or not saved:
        return
    owner, largest = max(saved, key=lambda pair: pair[1].storage_bytes or 0)
    evidence = {"bytes before backward": result.kept_bytes, "bytes at the end": result.kept_bytes_after}
    count = f"{len(saved)} tensors" if len(saved) > 1 else "one tensor"
    text = (
        f"For backward the graph keeps {count} in {bytes_text(result.kept_bytes)} of memory; the largest is "
        f"{describe_slot(owner, largest)} of {owner.label}, {bytes_text(largest.storage_bytes or 0)}. "
    )
    if result.kept_bytes_after == 0:
        yield Finding(
            level="fact",
            title="backward freed what the graph kept",
            text=text + "backward let go of all of it.",
            evidence=evidence,
        )
    elif result.kept_bytes_after < result.kept_bytes:
        text += f"{bytes_text(result.kept_bytes_after)} are still kept."
        yield Finding(level="fact", title="backward freed a part of what the graph kept", text=text, evidence=evidence)
    elif retained := [run for run in result.passes if run.retain_graph and run.by == "program"]:
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


def _broadcast(result: Result) -> Iterator[Finding]:
    """An operand that was repeated to fit gets its gradient summed back."""
    nodes = {node.id: node for node in _all_nodes(result)}
    for step in _last_pass(result):
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
                    f"{node.label} sums the gradient back to the shape of {name} and hands on {_words(given)}."
                )
                evidence = {"shape": list(small), "repeated to": list(large), "uses of each entry": times}
                yield Finding(
                    level="surprise",
                    title=f"{name} was broadcast: its gradient is a sum",
                    text=text,
                    evidence=evidence,
                    line=node.line,
                )
                return


def _order(result: Result) -> Iterator[Finding]:
    names = {node.id: node.name for node in _all_nodes(result)}
    steps = _last_pass(result)
    if 0 < len(steps) <= 8:
        order = ", then ".join(names[step.node] for step in steps)
        stored = next((step.after for step in reversed(steps) if step.after is not None), None)
        ending = f" The last value stored in a leaf is {_words(stored)}." if stored is not None else ""
        text = f"{order}. A node runs when the gradients of all its uses have arrived.{ending}"
        yield Finding(
            level="fact", title="The order in which the engine ran", text=text, evidence={"nodes run": len(steps)}
        )


def _recomputed(result: Result) -> Iterator[Finding]:
    marked = [s for node in _all_nodes(result) for s in node.saved if s.recomputed]
    if marked:
        text = (
            f"{len(marked)} saved tensors are markers: checkpoint threw the values away after the forward, and backward runs "
            "the forward again to get them. Looking at the graph here did not run it."
        )
        yield Finding(
            level="fact",
            title="Recomputed instead of kept",
            text=text,
            evidence={"markers": len(marked), "kept bytes": result.kept_bytes},
        )


def _frozen(result: Result) -> Iterator[Finding]:
    parameters = [t for t in result.tensors if "." in t.name and t.is_leaf and _is_float(t)]
    frozen = [t for t in parameters if not t.requires_grad]
    if frozen and len(frozen) < len(parameters):
        text = (
            f"{len(frozen)} of {len(parameters)} parameters and buffers do not require gradients. They have no node in the "
            f"graph, and backward ran {len(_last_pass(result))} nodes without computing anything for them."
        )
        evidence = {"frozen": len(frozen), "nodes run": len(_last_pass(result))}
        yield Finding(level="fact", title="Frozen parameters are not in the graph", text=text, evidence=evidence)


def _cut(result: Result) -> Iterator[Finding]:
    why = {
        "detach": "gives a tensor with the same values and no history",
        "no_grad": "ran with gradients switched off, so its result is a constant for autograd",
        "inference_mode": "ran in inference mode, so its result is a constant for autograd",
        "copy": "copies the values and leaves the history behind",
    }
    for cut in result.cuts:
        if cut.reason in why and not result.no_graph:
            target = f" ({cut.target})" if cut.target else ""
            text = f"{cut.operation} on line {cut.line} {why[cut.reason]}. No gradient flows through it{target}."
            evidence = {"operation": cut.operation, "from": cut.source or "a result", "to": cut.target or "a result"}
            yield Finding(
                level="surprise", title=f"{cut.operation} cuts the graph", text=text, evidence=evidence, line=cut.line
            )
            return


def _custom(result: Result) -> Iterator[Finding]:
    custom = [node for node in result.nodes if node.kind == "custom"]
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


def _by_lab(result: Result) -> Iterator[Finding]:
    if any(run.by == "lab" and not run.error for run in result.passes):
        text = f"The program did not call backward, so it was called on {result.root} here, to show the gradients."
        yield Finding(
            level="fact", title="backward was run for you", text=text, evidence={"steps": len(_last_pass(result))}
        )


_LOOKS: tuple[Callable[[Result], Iterator[Finding]], ...] = (
    _faults,
    _no_graph,
    _first_nonfinite,
    _missing_gradients,
    _accumulated,
    _zero_slope,
    _cut,
    _broadcast,
    _used_twice,
    _frozen,
    _custom,
    _recomputed,
    _by_lab,
    _kept,
    _order,
)


def _all_nodes(result: Result) -> list[Node]:
    return [*result.nodes, *(node for run in result.passes for node in run.nodes)]


def _last_pass(result: Result) -> tuple[Step, ...]:
    return result.backward[-1] if result.backward else ()


def _numbers(value: Plain) -> Iterator[float]:
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, dict):
        yield from (value[key] for key in ("min", "max", "norm") if key in value)
    elif isinstance(value, (int, float)):
        yield float(value)


def _finite(value: Plain) -> bool:
    return all(map(math.isfinite, _numbers(value)))


def _is_zero(value: Plain) -> bool:
    numbers = list(_numbers(value))
    return bool(numbers) and not any(numbers)


def _is_float(tensor: Named) -> bool:
    return "float" in tensor.dtype or "complex" in tensor.dtype


def _words(value: Plain) -> str:
    """A gradient in a sentence: a number, "(0.1, −2)", or its size."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return (
            f"a tensor {value.get('shape')} of norm {number_text(float(value['norm']))}"
            if "norm" in value
            else "a tensor"
        )
    if isinstance(value, list):
        shown = [_words(item) for item in value[:4]]
        return f"({', '.join(shown)}{', …' if len(value) > 4 else ''})"
    return number_text(float(value)) if isinstance(value, (int, float)) else str(value)


def _short(message: str) -> str:
    return message if len(message) < 300 else message[:300] + "…"
