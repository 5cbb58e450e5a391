"""Gradients that are zero, whole or in part, and why: read from the numbers of the node that made them zero."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lab.contract import Finding, Site
from lab.experiments.autograd_graph.findings.record import (
    Record,
    bare,
    finite,
    flat,
    is_zero,
    numbers,
    on_line,
    site,
    words,
)
from lab.quantities import number_text
from lab.records.graph import Node, Pass, Plain, Step
from lab.records.operations import Checked, Made

_STEPS = {"round", "floor", "ceil", "trunc", "sign", "sgn", "fix", "heaviside"}
_STRAIGHT = {"threshold_backward": "relu", "leaky_relu_backward": "leaky_relu", "hardtanh_backward": "hardtanh"}
"""Backward of a function of straight pieces, as a node of its own where the backward pass was recorded."""
_CLAMPS = {"clamp", "clamp_min", "clamp_max", "hardtanh", "hardsigmoid", "relu6", "hardtanh_"}
_DROPOUTS = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout"}
_RECTIFIERS = {"relu", "threshold", "leaky_relu"}


def stopped_gradients(record: Record) -> Iterator[Finding]:
    """A node to which a gradient came and which handed on zero, wholly, or for the elements outside a clamp."""
    for run, steps in reversed(record.own_passes()):
        for step in steps:
            node = record.nodes[step.node]
            if not step.given or is_zero(step.incoming) or not finite(step.incoming):
                continue
            if all(is_zero(given) for given in step.given):
                finding = _whole(record, run, node, step)
            else:
                finding = _partial(record, run, node, step)
            if finding:
                yield finding
                return


def straight_second_derivative(record: Record) -> Iterator[Finding]:
    """A second derivative that is zero because every function on the way is made of straight pieces."""
    for run, steps in record.own_passes():
        straight = [s for s in steps if record.nodes[s.node].label in _STRAIGHT]
        last = [given for given in (steps[-1].given if steps else ()) if given is not None]
        if run.inputs is None or run.error or not last or not all(map(is_zero, last)):
            continue
        if all(is_zero(s.incoming) for s in straight):
            continue
        node = record.nodes[straight[0].node]
        name = _STRAIGHT[node.label]
        text = (
            f"{run.call}{on_line(run.line)} differentiates a gradient once more, and the result is 0 everywhere: {name} is made of straight "
            "pieces, so its second derivative is 0. A loss on it cannot be trained, and no error says so."
        )
        yield Finding(
            level="surprise",
            title=f"The second derivative of {name} is 0",
            text=text,
            evidence={"second derivative": 0.0},
            line=run.line,
            repair="Where the second derivative is trained on, use a curved function: tanh, softplus, SiLU or sin.",
            sites=site(run.line, "becomes zero here", name),
        )
        return


def _whole(record: Record, run: Pass, node: Node, step: Step) -> Finding | None:
    why, repair = _why_zero(record, node, step)
    if not why:
        return None
    made = record.made.get(node.state) if node.state is not None else None
    label = bare(made.operation) if made is not None and bare(made.operation) in _DROPOUTS else node.label
    text = (
        f"A gradient of {words(step.incoming)} arrives at {label}{on_line(node.line)} and 0 goes on: {why}. "
        "Nothing behind it will learn, and no error says so. That is different from a missing graph."
    )
    evidence = {"incoming": words(step.incoming), "handed on": 0.0}
    sites = site(node.line, "becomes zero here", label, words(step.incoming), 0)
    return Finding(
        level="surprise",
        title=f"{label} hands on zero",
        text=text,
        evidence=evidence,
        line=node.line,
        repair=repair,
        sites=sites,
    )


def _why_zero(record: Record, node: Node, step: Step) -> tuple[str, str]:
    """The reason, empty where the numbers do not show one."""
    made = record.made.get(node.state) if node.state is not None else None
    label = node.label
    if label in _STEPS:
        return f"{label} is flat between its steps, so its derivative is 0", (
            "Use a function with a slope, or a custom Function that passes the gradient straight through."
        )
    inputs = [flat(record.made[i].value) if i in record.made else None for i in made.inputs] if made else []
    first = inputs[0] if inputs else None
    if made is not None and bare(made.operation) in _DROPOUTS and _is_zero(made) and (first is None or any(first)):
        return (
            f"{bare(made.operation)} dropped every element, and what is dropped gets no gradient",
            "Use a dropout probability below 1.",
        )
    if label == "mul" and made is not None:
        for i, values in zip(made.inputs, inputs, strict=True):
            if values is not None and not any(values):
                name = record.made[i].name or "the other factor"
                return (
                    f"{name} is 0, and the derivative of a product is the other factor",
                    "Check the factor or mask that is 0.",
                )
        return (
            ("the constant factor is 0", "Check the factor that is 0.")
            if not any(inputs[0] or [0.0]) or _constant_zero(record, node)
            else ("", "")
        )
    below = first is not None and all(v <= 0 for v in first)
    if label in _RECTIFIERS and (below or (label == "relu" and _is_zero(made))):
        return (
            f"all of its {math.prod(node.shape or ()):,} inputs are 0 or below, where {label} is flat",
            "Check the scale of the inputs and the bias before it.",
        )
    if label in _CLAMPS and first is not None:
        return (
            f"every input is outside the range of {label}, where it is flat",
            "Widen the range, or clamp what is shown and not what is trained.",
        )
    if node.kind == "custom":
        return (
            "that is what its backward in Python returned",
            "Check the backward of this Function in float64 with gradcheck.",
        )
    if any(s.changed_line for s in node.saved):
        return "", ""
    return "", ""


def _is_zero(made: Made | None) -> bool:
    return made is not None and (made.zero or is_zero(made.value))


def _constant_zero(record: Record, node: Node) -> bool:
    return "* 0" in record.text(node.line) and "* 0." not in record.text(node.line)


def _partial(record: Record, run: Pass, node: Node, step: Step) -> Finding | None:
    """Elements outside a clamp: they cannot come back."""
    if node.label not in _CLAMPS or len(step.given) != 1:
        return None
    incoming, given = flat(step.incoming), flat(step.given[0])
    made = record.made.get(node.state) if node.state is not None else None
    taken = record.made.get(made.inputs[0]) if made and made.inputs else None
    points = flat(taken.value) if taken else None
    if incoming is None or given is None or points is None or not len(incoming) == len(given) == len(points):
        return _partial_of_many(node, step)
    stuck = [i for i, (a, b) in enumerate(zip(incoming, given, strict=True)) if a and not b]
    if not stuck:
        return None
    name = taken.name if taken and taken.name else "its input"
    shown = " and ".join(
        f"{name}[{i}] = {number_text(points[i])}" if len(points) > 1 else f"{name} = {number_text(points[i])}"
        for i in stuck[:3]
    )
    text = (
        f"{node.label}{on_line(node.line)} hands on 0 for {shown}{', …' if len(stuck) > 3 else ''}, which lie outside its range, although a gradient arrives. "
        f"{len(stuck)} of {len(points)} elements get no gradient: they cannot come back."
    )
    evidence = {"elements without gradient": len(stuck), "of": len(points)}
    sites = site(node.line, "becomes zero here", name, words(step.incoming), words(step.given[0]))
    repair = "Clamp what is shown and not what is trained, or use a function with a slope such as sigmoid."
    return Finding(
        level="surprise",
        title=f"{node.label} stops the gradient of {len(stuck)} of {len(points)} elements",
        text=text,
        evidence=evidence,
        line=node.line,
        repair=repair,
        sites=sites,
    )


def cancelled_paths(record: Record) -> Iterator[Finding]:
    """Paths into a leaf whose gradients are not zero and add up to zero."""
    for run, steps in reversed(record.own_passes()):
        for step in steps:
            if not is_zero(step.incoming) or record.nodes[step.node].kind != "leaf":
                continue
            parts = [
                (record.nodes[s.node], given)
                for s in steps
                for parent, given in zip(s.parents, s.given, strict=False)
                if parent == step.node
            ]
            if len(parts) < 2 or any(is_zero(given) for _, given in parts):
                continue
            name = record.nodes[step.node].label
            paths = " and ".join(f"{words(given)} through {node.label}" for node, given in parts[:3])
            text = (
                f"{run.call}{on_line(run.line)} brings {name} {paths}: they cancel. backward adds the rows of the Jacobian, weighted with the gradient "
                f"that it starts from, and here that sum is 0, although no derivative on the way is."
            )
            sites = site(run.line, "summed here", name, words(parts[0][1]), 0) + tuple(
                s for node, _ in parts[:2] for s in site(node.line, "path starts here", node.label)
            )
            evidence = {f"through {node.label}": words(given) for node, given in parts[:3]}
            yield Finding(
                level="surprise",
                title=f"The paths into {name} cancel",
                text=text,
                evidence=evidence,
                line=run.line,
                repair="Start from another gradient, or from a loss that is not the plain sum.",
                sites=sites,
            )
            return


def _partial_of_many(node: Node, step: Step) -> Finding | None:
    """The same for a tensor too large to be shown whole."""
    count = math.prod(node.shape or ())
    if not step.stopped:
        return None
    text = (
        f"{node.label}{on_line(node.line)} hands on 0 for {step.stopped:,} of {count:,} elements to which a gradient arrives: "
        "they lie outside its range and cannot come back."
    )
    return Finding(
        level="surprise",
        title=f"{node.label} stops the gradient of {step.stopped:,} of {count:,} elements",
        text=text,
        evidence={"elements without gradient": step.stopped, "of": count},
        line=node.line,
        repair="Clamp what is shown and not what is trained, or use a function with a slope such as sigmoid.",
        sites=site(node.line, "becomes zero here", node.label, words(step.incoming), words(step.given[0])),
    )


def bias_before_batch_norm(record: Record) -> Iterator[Finding]:
    """A bias whose gradient is rounding: batch normalisation takes the mean away, and with it the bias."""
    for _, steps in record.own_passes():
        norms = [s for s in steps if record.nodes[s.node].label.endswith("batch_norm")]
        arrived = {s.node: s.incoming for s in steps}
        for norm in norms:
            for above in norm.parents:
                biases = [n for n in record.parents.get(above, []) if record.nodes[n].label.endswith(".bias")]
                for bias in biases:
                    size, scale = _largest(arrived.get(bias)), _largest(arrived.get(above))
                    rows = math.prod((record.nodes[above].shape or (1,))[:1])
                    if size is None or not scale or size > max(1e-5, 1e-6 * rows) * scale:  # a sum over the rows
                        continue
                    name, layer = record.nodes[bias].label, record.nodes[norm.node]
                    text = (
                        f"{name} gets a gradient of at most {number_text(size)}, where {number_text(scale)} arrives at its layer: "
                        f"{layer.label}{on_line(layer.line)} subtracts the mean, so adding a bias before it changes nothing. What is left is rounding."
                    )
                    yield Finding(
                        level="surprise",
                        title=f"{name} cannot matter before batch normalisation",
                        text=text,
                        evidence={"largest gradient": size, "arrives at the layer": scale},
                        line=layer.line,
                        repair="Leave it out: bias=False in the layer before.",
                        sites=_built(record, "BatchNorm")
                        + site(layer.line, "mean taken away here", name)
                        + site(record.nodes[above].line, "bias added here", name),
                    )
                    return


def _built(record: Record, layer: str) -> tuple[Site, ...]:
    """Where the program builds its only layer of this kind."""
    lines = [n for n, text in enumerate(record.lines, 1) if f"{layer}1d(" in text or f"{layer}2d(" in text]
    return site(lines[0], "built here", layer) if len(lines) == 1 else ()


def _largest(value: Plain) -> float | None:
    """The largest absolute number; of a summary the larger of its extremes."""
    if isinstance(value, dict):
        return max(abs(float(value["min"])), abs(float(value["max"]))) if "min" in value else None
    found = [abs(number) for number in numbers(value)]
    return max(found) if found else None


def conventions(record: Record) -> Iterator[Finding]:
    """Points where the slope from the left and from the right differ: torch picks one by convention."""
    kinks = [c for c in record.result.checked if c.order == 1 and _kink(c)]
    if not kinks:
        return
    first = kinks[0]
    text = "; ".join(
        f"{c.operation}{on_line(c.line)} at {number_text(c.at)} has slope {number_text(c.left)} on the left and {number_text(c.right)} on the right, and torch hands on {number_text(c.engine)}"
        for c in _distinct(kinks)[:3]
    )
    sites = tuple(s for c in _distinct(kinks)[:3] for s in site(c.line, "kink here", c.operation, c.left, c.right))
    evidence = {"left": first.left, "right": first.right, "torch": first.engine}
    yield Finding(
        level="surprise", title=f"{first.operation} has a kink at {number_text(first.at)}: the slope there is a convention", text=text + ".", evidence=evidence, line=first.line,
        repair="Nothing is wrong with either choice; keep away from the point if training rests on it.", sites=sites,
    )  # fmt: skip


def _distinct(kinks: list[Checked]) -> list[Checked]:
    return list({(c.operation, c.line, c.at): c for c in kinks}.values())


def _kink(c: Checked) -> bool:
    scale = max(abs(c.left), abs(c.right), abs(c.engine))
    return abs(c.left - c.right) > max(1e-3 * scale, 1e-4)
