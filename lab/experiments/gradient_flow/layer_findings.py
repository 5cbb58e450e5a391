"""What to notice about single layers: silent, saturated, without a gradient, below a format, stuck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch

from lab.contract import Finding
from lab.experiments.gradient_flow.schema import NO_STATE, Result
from lab.quantities import number_text

_SILENT, _DEAD, _SATURATED = 0.2, 0.9, 0.3


def _dead_or_saturated(result: Result) -> Iterator[Finding]:
    dead = max(result.layers, key=lambda layer: layer.dead_share or 0)
    if (dead.dead_share or 0) > _SILENT:
        text = f"{_share(dead.dead_share)} of the units of {dead.name} are zero for every sample of this batch: no gradient reaches their weights at this step."
        level = "warning" if (dead.dead_share or 0) > _DEAD else "surprise"
        repair = "Use an activation with a slope on both sides, or smaller steps."
        change = of_family(result, {"activation": "leaky_relu"})
        yield Finding(
            level=level,
            title=f"Silent units in {dead.name}",
            text=text,
            evidence={"dead share": dead.dead_share},
            repair=repair,
            change=change,
        )
    full = max(result.layers, key=lambda layer: layer.saturated_share or 0)
    if (full.saturated_share or 0) > _SATURATED and not full.hardtanh_at_bound:
        text = f"{_share(full.saturated_share)} of the values of {full.name} lie within 1 % of a bound of the activation function, where its derivative is next to zero."
        repair = "Smaller initial weights, or a normalisation before the activation."
        change = of_family(result, {"gain": 1.0, "init": "xavier"})
        yield Finding(
            level="warning",
            title=f"{full.name} is saturated",
            text=text,
            evidence={"saturated share": full.saturated_share},
            repair=repair,
            change=change,
        )


def _nothing_arrived(result: Result) -> Iterator[Finding]:
    missing = [layer for layer in result.layers if layer.weight_grad_norm is None]
    if missing:
        names = ", ".join(layer.name for layer in missing[:3]) + ("…" if len(missing) > 3 else "")
        text = " ".join(f"{layer.name}: {layer.why_none.removeprefix('None: ')}." for layer in missing[:3])
        yield Finding(
            level="warning",
            title=f"No gradient: {names}",
            text=text,
            evidence={"layers without a gradient": len(missing)},
            repair="Use the layer on the way to the loss, or leave it out of the optimizer.",
        )
    zero = [layer for layer in result.layers if layer.weight_grad_norm == 0 and layer.why_none != NO_STATE]
    if zero:
        text = f"{zero[0].name} has a gradient, and it is exactly zero. {zero[0].why_none.removeprefix('zero: ').capitalize()}. Zero is not None: an optimizer with momentum or weight decay still moves these weights."
        yield Finding(
            level="warning",
            title=f"Exactly zero: {zero[0].name}",
            text=text,
            evidence={"layers with a zero gradient": len(zero), "dtype": result.dtype},
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
    yield Finding(level="surprise", title=title, text=text, evidence=evidence, repair="Scale the loss, or use bf16.")


def _bias_before_batchnorm(result: Result) -> Iterator[Finding]:
    everywhere = result.settings["family"] != "own" and result.settings["norm"] == "batch"
    for layer, after in zip(result.layers, (*result.layers[1:], None), strict=True):
        bias, weight = layer.bias_grad_norm, layer.weight_grad_norm
        before = (everywhere and layer.inner) or (after is not None and "BatchNorm" in after.kind)
        if before and bias is not None and weight and bias < 1e-5 * weight:
            text = f"The bias of {layer.name} gets {number_text(bias / weight)} of what its weight gets, and that is no fault: BatchNorm subtracts the mean of the batch, so adding a constant before it changes nothing."
            yield Finding(
                level="fact",
                title="A bias before BatchNorm cannot matter",
                text=text,
                evidence={"bias": bias, "weight": weight},
                repair="Write bias=False in the layer before a BatchNorm.",
            )
            return


@cache
def clamp_slope_on_its_bound() -> float:
    """What this torch takes as the derivative of clamp exactly on a bound: a convention that releases do not share."""
    x = torch.tensor(3.0, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.clamp(x, -2.0, 3.0), x)
    return slope.item()


def _at_a_bound(result: Result) -> Iterator[Finding]:
    for layer in result.layers:
        if layer.hardtanh_at_bound:
            inputs = f"{layer.hardtanh_at_bound} inputs" if layer.hardtanh_at_bound > 1 else "An input"
            clamp = clamp_slope_on_its_bound()
            beside = (
                "So does torch.clamp in this release."
                if clamp == 0
                else f"torch.clamp takes it as {clamp:g} in this one."
            )
            text = f"{inputs} of hardtanh in {layer.name} lies exactly on a bound. PyTorch takes its derivative there as 0, so it never moves. {beside}"
            yield Finding(
                level="surprise",
                title="Stuck on the bound of hardtanh",
                text=text,
                evidence={"inputs on a bound": layer.hardtanh_at_bound, "slope of clamp there": clamp},
                repair="Keep values off the bound." if clamp == 0 else "Use torch.clamp, or keep values off the bound.",
            )
            return


def _sum_reduction(result: Result) -> Iterator[Finding]:
    if result.settings["reduction"] == "sum" and result.batch_size and result.settings["family"] != "own":
        text = f"The losses of {result.batch_size} samples are added, so every gradient norm on this page grows with the batch. Norms of two runs compare only with equal reduction and batch size."
        yield Finding(
            level="surprise",
            title="Summed loss: norms grow with the batch",
            text=text,
            evidence={"batch size": result.batch_size},
            repair="Take the mean.",
            change={"reduction": "mean"},
        )


def of_family(result: Result, change: dict[str, Any]) -> dict[str, Any]:
    """Only what would change; a visitor's own model has none of these knobs but the learning rate."""
    own = result.settings["family"] == "own"
    return {k: v for k, v in change.items() if result.settings.get(k) != str(v) and (not own or k == "lr")}


def _share(value: float | None) -> str:
    """In percent, never rounded to none or all."""
    if value is None:
        return "an unknown share"
    if 0 < value < 0.001:
        return "less than 0.1 %"
    return "more than 99.9 %" if 0.999 < value < 1 else f"{100 * value:.3g} %"


LOOKS: Sequence[Any] = (
    _dead_or_saturated,
    _nothing_arrived,
    _half_precision,
    _bias_before_batchnorm,
    _at_a_bound,
    _sum_reduction,
)
