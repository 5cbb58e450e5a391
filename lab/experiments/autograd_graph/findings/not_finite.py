"""NaN and infinity: the forward before the backward, and the mechanism, each read from the numbers that were met."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from lab.contract import Finding
from lab.experiments.autograd_graph.findings.mechanism import mechanism
from lab.experiments.autograd_graph.findings.record import (
    Record,
    bare,
    finite,
    flat,
    module_words,
    named_index,
    numbers,
    of_line,
    on_line,
    site,
    words,
)
from lab.quantities import number_text
from lab.records.graph import Node, Pass, Plain, Step
from lab.records.operations import Made, NonFinite


def not_finite(record: Record) -> Iterator[Finding]:
    """One cause: the forward where NaN of the forward went into a loss or was met by backward, else the backward."""
    forward, backward = list(nan_in_forward(record)), list(nan_in_backward(record))
    began = next(
        (n for n in record.result.nonfinite if n.kind == "NaN" and (n.reaches or (n.lasts and n.operands))), None
    ) or next((n for n in record.result.nonfinite if n.reaches and forward and n.line == forward[0].line), None)
    if forward and backward and began is not None:
        if began.line == backward[0].line or began.reaches:
            first, second = forward[0], backward[0]
            sites = first.sites + tuple(s for s in second.sites if s.line not in {f.line for f in first.sites})
            yield replace(
                first,
                text=f"{first.text} In backward {second.text}",
                sites=sites,
                evidence={**first.evidence, **second.evidence},
            )
            return
        yield from backward
        return
    yield from backward or forward


def nan_in_forward(record: Record) -> Iterator[Finding]:
    """The first NaN (or infinity) of the forward that reached a loss or is still there at the end."""
    if record.result.fault and record.result.fault.type not in ("RuntimeError", "AssertionError", "ValueError"):
        return
    seen = [n for n in record.result.nonfinite if n.line and (n.reaches or (n.lasts and n.operands))]
    nan = next((n for n in seen if n.kind == "NaN"), None)
    if nan is None:
        yield from _infinite_loss(record, seen)
        return
    origin = _origin_of_infinity(record, nan)
    what, repair = mechanism(nan)
    text = f"{bare(nan.operation)}{on_line(nan.line)}{module_words(nan.module)} {what}."
    sites = site(
        nan.line, "became NaN here", nan.name or named_index(bare(nan.operation), nan.index), _given(nan), "NaN"
    )
    if origin is not None:
        first, repair = mechanism(origin)
        text = f"{bare(origin.operation)}{on_line(origin.line)} {first}; {text}"
        sites = (
            site(origin.line, "became infinite here", origin.name or bare(origin.operation), _given(origin), "infinity")
            + sites
        )
    passed = _passed_on(record, nan)
    if passed:
        text += f" {bare(passed.operation)}{on_line(passed.line)} only passed it on."
    if nan.elements > 1:
        text += f" {nan.count:,} of {nan.elements:,} elements are NaN, the first at {list(nan.index)}."
    quiet = _finite_gradients(record)
    if quiet:
        text += f" The gradients are finite all the same: {quiet}, so anomaly mode stays quiet."
    evidence = {"given": _given(nan), "returned": "NaN", "elements": nan.count}
    began = f"{bare(origin.operation)} made infinity" if origin is not None else f"{bare(nan.operation)} made NaN"
    yield Finding(
        level="warning",
        title=f"{began} in the forward",
        text=text,
        evidence=evidence,
        line=nan.line,
        repair=repair,
        sites=sites,
    )


def _finite_gradients(record: Record) -> str:
    steps = [s for run, steps in record.own_passes() for s in steps if not run.error]
    if steps and all(finite(s.incoming) and all(map(finite, s.given)) for s in steps):
        return "no slope on the way is infinite or NaN"
    return ""


def _infinite_loss(record: Record, seen: list[NonFinite]) -> Iterator[Finding]:
    """Infinity that reached the loss itself."""
    roots = [record.result.loss_state, *(root for run, _ in record.own_passes() for root in run.roots)]
    loss = next((record.made[root] for root in roots if root in record.made), None)
    first = next((n for n in seen if n.kind == "infinity" and n.reaches), None)
    half = next(
        (
            n
            for n in seen
            if n.kind == "infinity"
            and n.dtype == "float16"
            and n.operation in ("sum", "mul", "matmul", "linear", "pow", "exp", "add")
        ),
        None,
    )
    if half is not None and (loss is None or not loss.infinite):
        text = (
            f"{bare(half.operation)}{on_line(half.line)} returned infinity in float16, whose largest number is 65,504."
        )
        yield Finding(
            level="surprise",
            title=f"{bare(half.operation)} overflows float16",
            text=text,
            evidence={"largest float16": 65504},
            line=half.line,
            repair="Compute it in float32: dtype=torch.float32, or .float() before it.",
            sites=site(half.line, "became infinite here", half.name or bare(half.operation), _given(half), "infinity"),
        )
        return
    if loss is None or not loss.infinite or first is None:
        return
    what, repair = mechanism(first)
    text = f"{bare(first.operation)}{on_line(first.line)}{module_words(first.module)} {what}, and the loss is infinite."
    sites = site(first.line, "became infinite here", first.name or bare(first.operation), _given(first), "infinity")
    yield Finding(
        level="warning",
        title=f"{bare(first.operation)} made infinity in the forward",
        text=text,
        evidence={"given": _given(first)},
        line=first.line,
        repair=repair,
        sites=sites,
    )


def _given(seen: NonFinite) -> str:
    values = [number_text(float(v)) for v in seen.at_index if isinstance(v, (int, float))]
    return ", ".join(values)


_MASKS = {"masked_fill", "masked_fill_", "full", "full_like", "tensor", "where", "fill_", "__setitem__", "triu", "tril"}
"""Operations that put infinity where the program asked for it."""


def _origin_of_infinity(record: Record, nan: NonFinite) -> NonFinite | None:
    """The operation that made the infinity out of which this NaN was made, where the program did not put it there itself."""
    if not nan.given_infinity:
        return None
    behind = {made.state for made in record.behind([nan.state])}
    made = (n for n in record.result.nonfinite if n.kind == "infinity" and n.state in behind and n.moment < nan.moment)
    return next((n for n in made if n.operation not in _MASKS), None)


def _passed_on(record: Record, nan: NonFinite) -> Made | None:
    """The next operation that had this NaN for an input, where it has a line of its own or another name."""
    for made in record.result.made:
        if nan.state in made.inputs and made.nan and made.operation and made.operation != nan.operation:
            return made
    return None


# Backward.


def nan_in_backward(record: Record) -> Iterator[Finding]:
    """In each pass, the first node that turned finite gradients into NaN or infinity; the first such pass is told."""
    told: list[tuple[Pass, Step, Node]] = []
    for run, steps in record.own_passes():
        for step in steps:
            if finite(step.incoming) and not all(map(finite, step.given)):
                told.append((run, step, record.nodes[step.node]))
                break
    if not told:
        return
    culprit = next(
        (entry for entry in told if any(math.isnan(n) for given in entry[1].given for n in numbers(given))), told[0]
    )
    run, step, node = culprit
    bad = next(given for given in step.given if not finite(given))
    why, repair = _slope(record, node, step, bad)
    text = f"{node.label}{on_line(node.line)}{module_words(node.module)} received {words(step.incoming)} and handed on {words(bad)}. {why}"
    others = _other_passes(record, told, run)
    sites = site(
        node.line,
        "became NaN here" if any(map(math.isnan, numbers(bad))) else "became infinite here",
        node.label,
        words(step.incoming),
        words(bad),
    )
    sites += site(run.line, "backward runs here", run.call) if run.line != node.line else ()
    for other, _, other_node in told:
        if other is not run:
            sites += site(other_node.line, "became NaN here", other_node.label)
    evidence = {"incoming": words(step.incoming), "handed on": words(bad)}
    yield Finding(
        level="warning",
        title=f"The first non-finite gradient comes from {node.label}",
        text=f"{text}{others}",
        evidence=evidence,
        line=node.line,
        repair=repair,
        sites=sites,
    )


def _slope(record: Record, node: Node, step: Step, bad: Plain) -> tuple[str, str]:
    """Why the slope is not finite, from the numbers: the value was NaN, 0 met an infinite slope, or the slope is infinite."""
    made = record.made.get(node.state) if node.state is not None else None
    taken = record.made.get(made.inputs[0]) if made is not None and made.inputs else None
    inputs, outputs = flat(taken.value) if taken else None, flat(made.value) if made else None
    incoming, given = flat(step.incoming), flat(bad)
    where = _masked_later(record, node)
    if made is not None and made.nan:
        at = next((i for i, v in enumerate(outputs or []) if math.isnan(v)), None)
        value = f" (it got {number_text(inputs[at])})" if at is not None and inputs and at < len(inputs) else ""
        text = f"Its value was NaN in the forward already{value}, and so is its slope."
        if where:
            text += f" {where} masks the value, not the slope: 0 times NaN is NaN."
        return text, "Make the input of this operation safe before it: clamp it, or where() on the input."
    if inputs and incoming and given and len(inputs) == len(incoming) == len(given):
        at = next(i for i, v in enumerate(given) if not math.isfinite(v))
        point = number_text(inputs[at])
        if (
            math.isnan(given[at])
            and incoming[at] == 0
            and _infinite_slope(node.label, inputs[at], outputs[at] if outputs and at < len(outputs) else None)
        ):
            text = f"At {point} the slope of {node.label} is infinite, and 0 times infinity is NaN."
            if where:
                text += f" {where} masks the output, not the slope."
            return (
                text,
                f"Make the input of {node.label} safe before it (where() or clamp(min=eps) on the input), not its output.",
            )
        if math.isinf(given[at]):
            return (
                f"At {point} the slope of {node.label} is infinite.",
                f"Keep the input of {node.label} away from this point: add eps under it.",
            )
        return f"The point is {point}.", f"Keep the input of {node.label} away from this point."
    if node.label.startswith("linalg_eigh") or node.label.startswith("linalg_svd") or node.label == "linalg_eig":
        return (
            "Its eigenvectors are not unique where two eigenvalues are equal: the derivative divides by their difference, which is 0.",
            "Perturb the matrix, or use a loss of the eigenvalues or of the projector only.",
        )
    return "", f"Look at the input of {node.label}: keep it where its slope is finite."


def _infinite_slope(label: str, point: float, value: float | None) -> bool:
    if label in ("sqrt", "log", "rsqrt", "reciprocal", "log2", "log10", "pow", "div", "norm", "linalg_vector_norm"):
        return point == 0
    return label in ("exp", "expm1", "exp2", "sinh", "cosh") and value is not None and math.isinf(value)


def _masked_later(record: Record, node: Node) -> str:
    """The where or the mask that took this node's output, in words."""
    for made in record.result.made:
        if (
            node.state is not None
            and made.operation in ("where", "masked_fill")
            and any(node.state in m.inputs or m.state == node.state for m in record.behind([made.state]))
        ):
            return f"{made.operation}{on_line(made.line)}"
    return ""


def _other_passes(record: Record, told: list[tuple[Pass, Step, Node]], run: Pass) -> str:
    """What the other passes got, where some were finite and some were not."""
    parts = []
    bad = {id(entry[0]) for entry in told}
    for other, steps in record.own_passes()[:6]:
        if other is run or not steps or other.error:
            continue
        last = steps[-1]
        got = last.after if last.after is not None else last.incoming if not last.given else last.given[0]
        label = record.nodes[steps[0].node].label if other.root is None else _main_operation(record, other)
        state = "not finite either" if id(other) in bad else "finite"
        parts.append(f"{other.call}{on_line(other.line)} through {label} is {state}: {words(got)}")
    return f" Compare: {'; '.join(parts)}." if parts else ""


def _main_operation(record: Record, run: Pass) -> str:
    node = record.nodes.get(run.root) if run.root is not None else None
    return f"{node.label}{of_line(node.line) if node.line != run.line else ''}" if node else "its graph"
