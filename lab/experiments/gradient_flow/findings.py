"""What to notice about the gradient over depth, computed from the result. Clipping has its own module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lab.contract import Finding, by_level
from lab.experiments.gradient_flow.clip_findings import LOOKS as CLIP_LOOKS
from lab.experiments.gradient_flow.layer_findings import LOOKS as LAYER_LOOKS
from lab.experiments.gradient_flow.layer_findings import of_family
from lab.experiments.gradient_flow.schema import Result
from lab.quantities import number_text
from lab.records.gradients import FirstNonfinite, Layer

MOST = 5
_DECADES = 2.0
"""Over the whole depth: beyond it the first layers learn visibly slower or faster than the last."""
_LEVEL = 0.7


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST`` things to notice, the most important first."""
    if not result.layers:
        return ()
    found = [finding for look in (*_LOOKS, *LAYER_LOOKS, *CLIP_LOOKS) for finding in look(result)]
    return tuple(by_level(found)[:MOST])


def _first_nonfinite(result: Result) -> Iterator[Finding]:
    first, step = result.first_nonfinite, result.first_nonfinite_step
    if first is None or step is None:
        return
    where = (f" in {first.layer}" if first.layer else "") + (f" on line {first.line}" if first.line else "")
    evidence = {"layer": first.layer or "after the last layer", "step": step, "operation": first.operation}
    if first.operation == "planted gradient":
        text = f"The planted gradient of {first.layer} is the first value that is not finite. Everything after it follows from it."
        yield Finding(
            level="fault", title=f"{first.value} planted{where}", text=text, evidence=evidence, change={"trap": "none"}
        )
        return
    late = step > 1
    edge = _EDGES.get(first.operation)
    at_edge = edge is not None and (first.pass_name == "backward" or (first.got is not None and first.got <= 0))
    text = (
        f"At step {step}, {first.operation}{where} turned finite numbers into {first.value} ({first.pass_name} pass). "
        + _why_not_finite(first, late=late, at_edge=at_edge)
    )
    change: dict[str, Any] = _smaller_step(result) if late else _critical(result)
    if result.dtype in ("float16", "bfloat16") and not late:
        change = {"dtype": "float32"}
    repair = (
        edge
        if edge and at_edge
        else "Lower the learning rate."
        if late
        else "Shrink the initial weights, normalise, or use a dtype with more range."
    )
    yield Finding(
        level="fault",
        title=f"First {first.value}: {first.operation}{where}",
        text=text,
        evidence=evidence,
        line=first.line,
        repair=repair,
        change={} if at_edge else of_family(result, change),
    )


_EDGES = {
    "log": "F.log_softmax or F.cross_entropy on the logits; otherwise an eps inside the log.",
    "sqrt": "An eps inside the root.",
    "backward of sqrt": "An eps inside the root.",
    "backward of log": "An eps inside the log.",
}
"""Operations with an edge in their domain, and how to keep off it."""


def _why_not_finite(first: FirstNonfinite, *, late: bool, at_edge: bool) -> str:
    if first.got is not None:
        return f"It got {number_text(first.got)}."
    if at_edge:
        return "At 0 its slope is infinite."
    if late:
        return "The step before it was too long."
    return "The values outgrew the largest number of the dtype, or the operation has no finite result here."


def _masked(result: Result) -> Iterator[Finding]:
    for name in result.masked[:1]:
        yield Finding(
            level="warning",
            title=f"{name or 'The model'}.requires_grad = False freezes nothing",
            text=f"requires_grad is no switch of a module: the assignment made an attribute that nothing reads, and the parameters of {name or 'the model'} "
            "still require gradients and are trained.",
            evidence={"modules": len(result.masked)},
            repair="module.requires_grad_(False), with the underscore, reaches its parameters.",
        )


def _unused(result: Result) -> Iterator[Finding]:
    for first in result.unused[:1]:
        more = f" and {len(result.unused) - 3} more" if len(result.unused) > 3 else ""
        yield Finding(
            level="warning",
            title=f"No gradient: {first}",
            text=f"After backward .grad is None for {', '.join(result.unused[:3])}{more}: no path leads from there to the loss, although other "
            "parameters of the same layer got a gradient.",
            evidence={"parameters without a gradient": len(result.unused)},
            repair="Use it on the way to the loss, or take it out of the model.",
        )


def _lost_updates(result: Result) -> Iterator[Finding]:
    lost = [row for row in result.layers if row.update_ratio == 0 and (row.clipped_grad_norm or 0) > 0]
    steps = _STEPS.get(result.dtype)
    if lost and steps and float(result.settings["lr"]) > 0 and not result.clipping.skipped_steps:
        yield Finding(
            level="warning",
            title=f"Updates are lost in rounding: {lost[0].name}",
            text=f"A gradient of norm {number_text(lost[0].clipped_grad_norm or 0)} arrived at {lost[0].name}, the optimizer stepped with learning rate "
            f"{result.settings['lr']}, and not one bit of its weights changed. {result.dtype} numbers near 1 are {steps:g} apart, and less than half of that is rounded away.",
            evidence={"layers that did not move": len(lost), "layers": len(result.layers)},
            repair="Keep the weights in float32 and compute under autocast, or use a larger learning rate.",
        )


_STEPS = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Distance of neighbouring numbers just above 1."""


def _over_time(result: Result) -> Iterator[Finding]:
    for row in result.over_time:
        first, last, largest = row.norms[0], row.norms[-1], max(row.norms)
        if len(row.norms) < 5 or not largest > 0:
            continue
        level = "warning" if first < 1e-6 * largest else "fact"
        share = f"{number_text(first / largest)} of the largest" if first > 0 else "exactly nothing"
        yield Finding(
            level=level,
            title=f"{row.name} ({row.kind}): what reaches the first time step",
            text=f"Over {len(row.norms)} time steps the gradient at the input of {row.name} is {number_text(last)} at the last step and {number_text(first)} at "
            f"the first, {share}.",
            evidence={"first step": first, "last step": last, "time steps": len(row.norms)},
            repair="Shorter sequences, attention, or for an LSTM a positive forget-gate bias."
            if level == "warning"
            else "",
        )


def _over_depth(result: Result) -> Iterator[Finding]:
    inner, decades = _inner(result), result.headline.decades_per_layer
    if len(inner) < 3 or decades is None:
        return
    total = decades * (len(inner) - 1)
    first, last = inner[0], inner[-1]
    evidence = {
        last.name: _shown(last.activation_grad_norm),
        first.name: _shown(first.activation_grad_norm),
        "decades per layer": decades,
    }
    if abs(total) < _DECADES:
        if abs(total) < _LEVEL:
            text = f"From {last.name} back to {first.name} the gradient changes by a factor of {number_text(10**total)} over {len(inner)} layers."
            yield Finding(level="fact", title="The gradient keeps its size", text=text, evidence=evidence)
        return
    change = of_family(result, _critical(result))
    if total < 0:
        text = (
            f"Every layer multiplies the gradient by {10**decades:.2f} on its way back, so {first.name} gets {_power(total)} of what "
            f"{last.name} gets. {_cause(result)}"
        )
        yield Finding(
            level="warning",
            title="The gradient vanishes",
            text=text,
            evidence=evidence,
            repair=_repair(result, change),
            change=change,
        )
    else:
        text = (
            f"Every layer multiplies the gradient by {10**decades:.2f} on its way back, so {first.name} gets {_power(total)} times what "
            f"{last.name} gets. {_cause(result)}"
        )
        yield Finding(
            level="warning",
            title="The gradient explodes",
            text=text,
            evidence=evidence,
            repair=_repair(result, change),
            change=change,
        )


def _theory(result: Result) -> Iterator[Finding]:
    prediction = result.prediction
    predicted, measured = prediction.decades_per_layer, prediction.measured_decades_per_layer
    if predicted is None or measured is None or prediction.tolerance is None or prediction.chi is None:
        return
    agree = abs(predicted - measured) <= prediction.tolerance
    evidence = {"predicted": predicted, "measured": measured, "expected difference": prediction.tolerance}
    text = (
        f"For a random cotangent at the output the theory of wide networks says {number_text(predicted)} decades a layer (χ = {number_text(prediction.chi)} "
        f"in the limit of depth); measured are {number_text(measured)}. "
    )
    if agree:
        yield Finding(
            level="fact",
            title="Theory and measurement agree",
            text=text + "The difference is within what √(depth / width) allows.",
            evidence=evidence,
        )
    else:
        text += "The theory is for very wide layers: the narrower and deeper, the further a single network strays."
        yield Finding(
            level="surprise",
            title="Theory and measurement differ",
            text=text,
            evidence=evidence,
            repair="Make the layers wider.",
            change={"width": 512},
        )


def _level_weights(result: Result) -> Iterator[Finding]:
    """Vanishing activations and vanishing gradients can hide each other in the weight gradients."""
    there, weights = result.headline.decades_per_layer, result.headline.weight_decades_per_layer
    inner = _inner(result)
    if there is None or weights is None or len(inner) < 4 or abs(there) * len(inner) < _DECADES:
        return
    if abs(weights) < 0.25 * abs(there):
        text = (
            "The weight gradients look level although the gradient itself does not: a weight gradient is the product of what comes "
            "back and the activation that went in, and the activations change the other way over depth."
        )
        yield Finding(
            level="surprise",
            title="Level weight gradients hide it",
            text=text,
            evidence={"weights, decades per layer": weights, "activations, decades per layer": there},
        )


def _inner(result: Result) -> list[Layer]:
    return [layer for layer in result.layers if layer.inner and layer.activation_grad_norm is not None]


def _power(exponent: float) -> str:
    return number_text(10**exponent) if abs(exponent) < 300 else f"10^{exponent:.0f}".replace("-", "−")


def _shown(value: float | None) -> float | str:
    return "None" if value is None else value


def _cause(result: Result) -> str:
    activation, chi = result.settings["activation"], result.prediction.chi
    if chi is not None:
        return f"The cause is χ = σw²·E[φ'²] = {number_text(chi)} for {activation} with {result.settings['init']} initialisation: it should be 1."
    if result.settings["family"] == "rnn":
        return "The same recurrent matrix and slopes of the activation are multiplied once per time step."
    return "Each layer's weights and the slopes of its activation function multiply."


def _critical(result: Result) -> dict[str, Any]:
    """Knobs that bring χ to 1, or as near as there is."""
    activation, family = result.settings["activation"], result.settings["family"]
    if family == "transformer":
        return {"norm": "layer", "norm_position": "pre", "residual": True, "gain": 1.0}
    if result.settings["norm"] == "batch":
        return {"residual": True}
    init = {"relu": "kaiming", "leaky_relu": "kaiming", "gelu": "kaiming", "silu": "kaiming", "identity": "orthogonal"}
    new = {"init": init.get(activation, "orthogonal" if family == "rnn" else "xavier"), "gain": 1.0}
    if activation == "sigmoid":
        new = {"activation": "relu", "init": "kaiming", "gain": 1.0}
    if all(result.settings.get(name) == str(value) for name, value in new.items()):
        return {"residual": True, "norm": "layer", "norm_position": "pre"}
    return new


def _smaller_step(result: Result) -> dict[str, Any]:
    return {"lr": float(f"{float(result.settings['lr']) / 10:.3g}")}


def _repair(result: Result, change: dict[str, Any]) -> str:
    if not change:
        return "Choose initial weights by the activation function, normalise, or add residual paths."
    return "Set " + ", ".join(f"{name} = {value}" for name, value in change.items()) + "."


_LOOKS: Sequence[Any] = (
    _first_nonfinite,
    _unused,
    _masked,
    _lost_updates,
    _over_time,
    _over_depth,
    _level_weights,
    _theory,
)
