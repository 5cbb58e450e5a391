"""What to notice about the gradient over depth, computed from the result. Clipping has its own module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lab.contract import Finding
from lab.experiments.gradient_flow.clip_findings import LOOKS as CLIP_LOOKS
from lab.experiments.gradient_flow.schema import NO_STATE, Layer, Result
from lab.quantities import number_text

MOST = 5
_DECADES = 2.0
"""Over the whole depth: beyond it the first layers learn visibly slower or faster than the last."""
_LEVEL = 0.7
_SILENT, _DEAD, _SATURATED = 0.2, 0.9, 0.3


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST`` things to notice, the most important first."""
    if not result.layers:
        return ()
    found = [finding for look in (*_LOOKS, *CLIP_LOOKS) for finding in look(result)]
    order = {"fault": 0, "warning": 1, "surprise": 2, "fact": 3}
    return tuple(sorted(found, key=lambda finding: order[finding.level])[:MOST])


def _first_nonfinite(result: Result) -> Iterator[Finding]:
    first, step = result.first_nonfinite, result.first_nonfinite_step
    if first is None or step is None:
        return
    where = f" in {first.layer}" if first.layer else ""
    evidence = {"layer": first.layer or "after the last layer", "step": step, "operation": first.operation}
    if first.operation == "planted gradient":
        text = f"The planted gradient of {first.layer} is the first value that is not finite. Everything after it follows from it."
        yield Finding("fault", f"{first.value} planted{where}", text, evidence, change={"trap": "none"})
        return
    late = step > 1
    text = (
        f"At step {step}, {first.operation}{where} turned finite numbers into {first.value} ({first.pass_name} pass). "
        + (
            "The step before it was too long."
            if late
            else "The values outgrew the largest number of the dtype, or the operation has no finite result here."
        )
    )
    change: dict[str, Any] = _smaller_step(result) if late else _critical(result)
    if result.dtype in ("float16", "bfloat16") and not late:
        change = {"dtype": "float32"}
    repair = (
        "Lower the learning rate." if late else "Shrink the initial weights, normalise, or use a dtype with more range."
    )
    yield Finding(
        "fault",
        f"First {first.value}: {first.operation}{where}",
        text,
        evidence,
        None,
        repair,
        _of_family(result, change),
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
            yield Finding("fact", "The gradient keeps its size", text, evidence)
        return
    change = _of_family(result, _critical(result))
    if total < 0:
        text = (
            f"Every layer multiplies the gradient by {10**decades:.2f} on its way back, so {first.name} gets {_power(total)} of what "
            f"{last.name} gets. {_cause(result)}"
        )
        yield Finding("warning", "The gradient vanishes", text, evidence, None, _repair(result, change), change)
    else:
        text = (
            f"Every layer multiplies the gradient by {10**decades:.2f} on its way back, so {first.name} gets {_power(total)} times what "
            f"{last.name} gets. {_cause(result)}"
        )
        yield Finding("warning", "The gradient explodes", text, evidence, None, _repair(result, change), change)


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
            "fact",
            "Theory and measurement agree",
            text + "The difference is within what √(depth / width) allows.",
            evidence,
        )
    else:
        text += "The theory is for very wide layers: the narrower and deeper, the further a single network strays."
        yield Finding(
            "surprise", "Theory and measurement differ", text, evidence, None, "Make the layers wider.", {"width": 512}
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
            "surprise",
            "Level weight gradients hide it",
            text,
            {"weights, decades per layer": weights, "activations, decades per layer": there},
        )


def _dead_or_saturated(result: Result) -> Iterator[Finding]:
    dead = max(result.layers, key=lambda layer: layer.dead_share or 0)
    if (dead.dead_share or 0) > _SILENT:
        text = f"{_share(dead.dead_share)} of the units of {dead.name} are zero for every sample of this batch: no gradient reaches their weights at this step."
        level = "warning" if (dead.dead_share or 0) > _DEAD else "surprise"
        repair = "Use an activation with a slope on both sides, or smaller steps."
        change = _of_family(result, {"activation": "leaky_relu"})
        yield Finding(
            level, f"Silent units in {dead.name}", text, {"dead share": dead.dead_share}, None, repair, change
        )
    full = max(result.layers, key=lambda layer: layer.saturated_share or 0)
    if (full.saturated_share or 0) > _SATURATED and not full.hardtanh_at_bound:
        text = f"{_share(full.saturated_share)} of the values of {full.name} lie within 1 % of a bound of the activation function, where its derivative is next to zero."
        repair = "Smaller initial weights, or a normalisation before the activation."
        change = _of_family(result, {"gain": 1.0, "init": "xavier"})
        yield Finding(
            "warning",
            f"{full.name} is saturated",
            text,
            {"saturated share": full.saturated_share},
            None,
            repair,
            change,
        )


def _nothing_arrived(result: Result) -> Iterator[Finding]:
    missing = [layer for layer in result.layers if layer.weight_grad_norm is None]
    if missing:
        names = ", ".join(layer.name for layer in missing[:3]) + ("…" if len(missing) > 3 else "")
        text = " ".join(f"{layer.name}: {layer.why_none.removeprefix('None: ')}." for layer in missing[:3])
        yield Finding(
            "warning",
            f"No gradient: {names}",
            text,
            {"layers without a gradient": len(missing)},
            None,
            "Use the layer on the way to the loss, or leave it out of the optimizer.",
        )
    zero = [layer for layer in result.layers if layer.weight_grad_norm == 0 and layer.why_none != NO_STATE]
    if zero:
        text = f"{zero[0].name} has a gradient, and it is exactly zero. {zero[0].why_none.removeprefix('zero: ').capitalize()}. Zero is not None: an optimizer with momentum or weight decay still moves these weights."
        yield Finding(
            "warning",
            f"Exactly zero: {zero[0].name}",
            text,
            {"layers with a zero gradient": len(zero), "dtype": result.dtype},
        )


def _half_precision(result: Result) -> Iterator[Finding]:
    lost = [layer for layer in result.layers if (layer.underflow_fp16_share or 0) > 0.01]
    if not lost:
        return
    worst = max(lost, key=lambda layer: layer.underflow_fp16_share or 0)
    shares = worst.underflow_fp16_share, worst.underflow_fp16_scaled_share, worst.underflow_bf16_share
    plain, scaled, wide = map(_share, shares)
    text = (
        f"{plain} of the weight gradient of {worst.name} would be zero in fp16, whose smallest number is 6e-8. With the loss times "
        f"65,536, as a GradScaler does, it is {scaled}; in bf16, which has the range of fp32, {wide}."
    )
    evidence: dict[str, Any] = dict(zip(("in fp16", "in fp16 with scaling", "in bf16"), shares, strict=True))
    title = f"fp16 would lose gradients of {len(lost)} of {len(result.layers)} layers"
    yield Finding("surprise", title, text, evidence, None, "Scale the loss, or use bf16.")


def _bias_before_batchnorm(result: Result) -> Iterator[Finding]:
    batchnorm = result.settings["norm"] == "batch" or any("BatchNorm" in layer.kind for layer in result.layers)
    for layer in result.layers:
        bias, weight = layer.bias_grad_norm, layer.weight_grad_norm
        if batchnorm and bias is not None and weight and bias < 1e-5 * weight and layer.kind != "BatchNorm1d":
            text = f"The bias of {layer.name} gets 10^5 times less than its weight, and that is no fault: BatchNorm subtracts the mean of the batch, so adding a constant before it changes nothing."
            yield Finding(
                "fact",
                "A bias before BatchNorm cannot matter",
                text,
                {"bias": bias, "weight": weight},
                None,
                "Write bias=False in the layer before a BatchNorm.",
            )
            return


def _at_a_bound(result: Result) -> Iterator[Finding]:
    for layer in result.layers:
        if layer.hardtanh_at_bound:
            inputs = f"{layer.hardtanh_at_bound} inputs" if layer.hardtanh_at_bound > 1 else "An input"
            text = f"{inputs} of hardtanh in {layer.name} lies exactly on a bound. PyTorch takes its derivative there as 0, so it never moves; clamp takes it as 1, and it does."
            yield Finding(
                "surprise",
                "Stuck on the bound of hardtanh",
                text,
                {"inputs on a bound": layer.hardtanh_at_bound},
                None,
                "Use torch.clamp, or keep values off the bound.",
            )
            return


def _sum_reduction(result: Result) -> Iterator[Finding]:
    if result.settings["reduction"] == "sum" and result.batch_size and result.settings["family"] != "own":
        text = f"The losses of {result.batch_size} samples are added, so every gradient norm on this page grows with the batch. Norms of two runs compare only with equal reduction and batch size."
        yield Finding(
            "surprise",
            "Summed loss: norms grow with the batch",
            text,
            {"batch size": result.batch_size},
            None,
            "Take the mean.",
            {"reduction": "mean"},
        )


def _inner(result: Result) -> list[Layer]:
    return [layer for layer in result.layers if layer.inner and layer.activation_grad_norm is not None]


def _share(value: float | None) -> str:
    """In percent, never rounded to none or all."""
    if value is None:
        return "an unknown share"
    if 0 < value < 0.001:
        return "less than 0.1 %"
    return "more than 99.9 %" if 0.999 < value < 1 else f"{100 * value:.3g} %"


def _power(exponent: float) -> str:
    return f"10^{exponent:.1f}".replace("-", "−")


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


def _of_family(result: Result, change: dict[str, Any]) -> dict[str, Any]:
    """Only what would change; a visitor's own model has none of these knobs but the learning rate."""
    own = result.settings["family"] == "own"
    return {k: v for k, v in change.items() if result.settings.get(k) != str(v) and (not own or k == "lr")}


def _repair(result: Result, change: dict[str, Any]) -> str:
    if not change:
        return "Choose initial weights by the activation function, normalise, or add residual paths."
    return "Set " + ", ".join(f"{name} = {value}" for name, value in change.items()) + "."


_LOOKS: Sequence[Any] = (
    _first_nonfinite,
    _over_depth,
    _nothing_arrived,
    _dead_or_saturated,
    _level_weights,
    _half_precision,
    _at_a_bound,
    _sum_reduction,
    _bias_before_batchnorm,
    _theory,
)
