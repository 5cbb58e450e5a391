"""What to notice about clipping, computed from the result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from lab.contract import Finding
from lab.experiments.gradient_flow.schema import Result
from lab.quantities import number_text
from lab.records.gradients import Clipping

_ALWAYS, _OFTEN = 0.95, 0.5
_NO_PROGRESS = 0.7
"""A loss that is still above this share of the first one has not been learned."""


def _raised(result: Result) -> Iterator[Finding]:
    clipping = result.clipping
    if clipping.error and "non-finite" not in clipping.error:
        call = f"clip_grad_{clipping.kind}_"
        text = f"{call} raised at step {len(clipping.steps)}, and no gradient was clipped: {clipping.error[:200]}"
        yield Finding(
            level="fault", title=f"{call} stopped the training", text=text, evidence={"step": len(clipping.steps)}
        )
    elif clipping.error:
        text = f"clip_grad_norm_ raised at step {len(clipping.steps)} instead of scaling: {clipping.error[:200]}"
        yield Finding(
            level="fault",
            title="error_if_nonfinite stopped the training",
            text=text,
            evidence={"step": len(clipping.steps)},
            repair="Find the layer whose gradient is not finite.",
            change={"trap": "none"},
        )


def _not_finite(result: Result) -> Iterator[Finding]:
    clipping = result.clipping
    bad = next((s for s in clipping.steps if s.returned is not None and not math.isfinite(s.returned)), None)
    if bad is None or clipping.error or clipping.kind != "norm" or bad.returned is None:
        return
    if math.isfinite(bad.norm_before):
        text = (
            f"Every gradient is finite, and yet clip_grad_norm_ returned {number_text(bad.returned)}: it squares the values in their own dtype, and the "
            f"square of one is too large. The true norm is {number_text(bad.norm_before)}. Divided by infinity, every gradient became zero."
        )
        yield Finding(
            level="fault",
            title="Squares overflow",
            text=text,
            evidence={"returned": bad.returned, "true norm": bad.norm_before, "norm after": bad.norm_after},
            repair="Use norm_type = inf, which squares nothing.",
            change={"norm_type": "inf"},
        )
        return
    zero = [layer.name for layer in result.layers if layer.clipped_grad_norm == 0]
    spoiled = [
        layer.name
        for layer in result.layers
        if layer.clipped_grad_norm is not None and math.isnan(layer.clipped_grad_norm)
    ]
    text = (
        f"The returned norm is {number_text(bad.returned)}, so the factor is limit / {number_text(bad.returned)}. After clipping at step 1, {len(zero)} layers have "
        f"a gradient of zero and {len(spoiled)} have NaN. No error, no warning: check the returned norm before the step."
    )
    evidence = {"returned": bad.returned, "layers zeroed": len(zero), "layers with NaN": len(spoiled)}
    yield Finding(
        level="fault",
        title="One bad gradient spoils all of them",
        text=text,
        evidence=evidence,
        repair="Pass error_if_nonfinite=True, or skip the step.",
        change={"error_if_nonfinite": True},
    )


def _mistakes(result: Result) -> Iterator[Finding]:
    clipping, trap = result.clipping, result.settings["trap"]
    if clipping.kind == "none" or clipping.limit is None or not clipping.steps:
        return
    first = clipping.steps[0]
    if clipping.kind == "norm" and first.returned == 0 and first.norm_before > 0:
        text = f"clip_grad_norm_ returned exactly 0 although the norm is {number_text(first.norm_before)}: the generator of parameters had been read before, so there was nothing left to clip. {clipping.warning}"
        yield Finding(
            level="fault",
            title="Nothing was clipped",
            text=text,
            evidence={"returned": 0.0, "true norm": first.norm_before},
            repair="Pass list(model.parameters()), or call model.parameters() again.",
            change={"trap": "none"},
        )
    if clipping.limit < 0:
        text = f"A negative limit is not refused: the gradient was multiplied by a negative factor, cosine {_cosine(first.cosine)}. Training climbs the loss."
        yield Finding(
            level="fault",
            title="The gradient points the other way",
            text=text,
            evidence={"limit": clipping.limit, "cosine": _cosine(first.cosine)},
            repair="The limit is a length: it must be positive.",
            change={"trap": "none"},
        )
    if clipping.limit == 0:
        text = "In PyTorch a limit of 0 sets every gradient to zero. Some trainers take 0 as 'no clipping'; here that is an infinite limit, or no call."
        yield Finding(
            level="warning",
            title="A limit of 0 is not off",
            text=text,
            evidence={"norm before": first.norm_before, "norm after": first.norm_after},
            repair="Switch clipping off.",
            change={"clip": "none", "clip_limit": 1.0},
        )
    if trap == "unscale" and first.returned is not None:
        text = (
            f"clip_grad_norm_ saw gradients that were 65,536 times too large and returned {number_text(first.returned)}; the true norm is {number_text(first.norm_before)}. "
            f"After unscaling, {number_text(first.norm_after)} is left: the step is that much too short."
        )
        yield Finding(
            level="fault",
            title="Clipped before unscaling",
            text=text,
            evidence={"returned": first.returned, "true norm": first.norm_before, "norm after": first.norm_after},
            repair="Call scaler.unscale_(optimizer) before clipping.",
            change={"trap": "none"},
        )
    if clipping.skipped_steps:
        text = f"The GradScaler found a value that is not finite and skipped {clipping.skipped_steps} of {len(clipping.steps)} steps."
        yield Finding(
            level="warning", title="Steps were skipped", text=text, evidence={"skipped": clipping.skipped_steps}
        )


def _symptom(result: Result) -> Iterator[Finding]:
    """Clipped at nearly every step: is something wrong, and is it the learning rate?"""
    clipping = result.clipping
    share = clipping.clipped_share
    if clipping.kind == "none" or share is None or share < _OFTEN or not _is_sound(result):
        return
    losses = [*result.loss, *([] if result.final_loss is None else [result.final_loss])]
    evidence: dict[str, Any] = {
        "steps clipped": share,
        "first loss": losses[0],
        "last loss": losses[-1],
    }
    if len(losses) > 5 and not losses[-1] < _NO_PROGRESS * losses[0]:
        text = (
            f"{share:.0%} of the steps are clipped and the loss went from {number_text(losses[0])} to {number_text(losses[-1])}. Clipping keeps each step short enough not to "
            "blow up, so nothing looks broken, and nothing is learned either. The cause is the step, not the gradient."
        )
        change = {"lr": float(f"{float(result.settings['lr']) / 10:.3g}")}
        yield Finding(
            level="warning",
            title="Clipping hides a learning rate that does not work",
            text=text,
            evidence=evidence,
            repair="Lower the learning rate, then look at the share again.",
            change=change,
        )
    elif share >= _ALWAYS:
        text = f"{share:.0%} of the steps are clipped: the limit, not the gradient, sets the length of nearly every step. The learning rate and the limit act as one knob."
        yield Finding(
            level="surprise",
            title="Every step is clipped",
            text=text,
            evidence=evidence,
            repair="Raise the limit to the size of a usual gradient norm.",
            change={"clip_limit": _usual_norm(clipping)},
        )


def _direction(result: Result) -> Iterator[Finding]:
    clipping = result.clipping
    first = next((s for s in clipping.steps if s.clipped), None)
    if clipping.kind == "none" or first is None or first.cosine is None or not _is_sound(result):
        return
    factor = first.norm_after / first.norm_before if first.norm_before else math.nan
    evidence = {"norm before": first.norm_before, "norm after": first.norm_after, "cosine": _cosine(first.cosine)}
    if clipping.kind == "norm":
        text = (
            f"At step {first.step} the norm of all gradients together was {number_text(first.norm_before)}, which is what clip_grad_norm_ returned; afterwards it is {number_text(first.norm_after)}. "
            f"Every layer was multiplied by the same {number_text(factor)}, the small ones too, so the direction stays."
        )
        yield Finding(level="fact", title="One factor for all layers", text=text, evidence=evidence)
    else:
        text = (
            f"At step {first.step}, {first.changed_share:.2%} of the values were cut to ±{number_text(clipping.limit or 0)}. Large components shrink, small ones stay, so the direction turns: "
            f"cosine {number_text(first.cosine)}."
        )
        yield Finding(
            level="surprise",
            title="Clipping by value turns the gradient",
            text=text,
            evidence=evidence,
            repair="Clip by norm to keep the direction.",
            change={"clip": "norm"},
        )


def _tied(result: Result) -> Iterator[Finding]:
    if result.tied and result.clipping.total_norms and result.settings["family"] == "rnn":
        steps = [
            layer.weight_grad_norm for layer in result.layers if layer.inner and layer.weight_grad_norm is not None
        ]
        apart = math.sqrt(math.fsum(n**2 for n in steps))
        text = (
            f"All {len(steps)} steps share one weight. What the steps bring is added into one .grad, and the total norm counts that sum once: {number_text(result.clipping.total_norms['2'])} "
            f"with the input and output layers. As if they were weights of their own, the steps alone would have {number_text(apart)}."
        )
        yield Finding(
            level="fact",
            title="A tied weight counts once",
            text=text,
            evidence={"total norm": result.clipping.total_norms["2"], "steps as if apart": apart},
        )


def _norm_types(result: Result) -> Iterator[Finding]:
    norms, clipping = result.clipping.total_norms, result.clipping
    if clipping.kind == "norm" and clipping.norm_type != "2" and norms and _is_sound(result):
        text = (
            f"The same gradients have norm {number_text(norms['1'])} (type 1), {number_text(norms['2'])} (type 2) and {number_text(norms['inf'])} (type inf, the largest entry). "
            f"A limit means something else for each. The layers' own norms add up to {number_text(math.fsum([v for k, v in norms.items() if 'sum' in k]))}, which is none of them."
        )
        yield Finding(
            level="fact",
            title=f"The limit is on the {clipping.norm_type}-norm",
            text=text,
            evidence={f"type {k}": v for k, v in norms.items() if "sum" not in k},
        )


def _is_sound(result: Result) -> bool:
    return result.settings["trap"] == "none" and not result.clipping.error and (result.clipping.limit or 0) > 0


def _cosine(value: float | None) -> float | str:
    return "not defined" if value is None else round(value, 6)


def _usual_norm(clipping: Clipping) -> float:
    norms = sorted(s.norm_before for s in clipping.steps if math.isfinite(s.norm_before))
    return float(f"{norms[len(norms) // 2]:.2g}") if norms else 1.0


LOOKS: Sequence[Any] = (_raised, _not_finite, _mistakes, _symptom, _direction, _norm_types, _tied)
