"""Presets on clipping: what it does to a gradient, what goes wrong with it, and what it does not repair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.contract import Lesson
from lab.experiments.gradient_flow.readings import NAMES, READINGS
from lab.experiments.gradient_flow.schema import Params, Result

_SMALL: dict[str, Any] = {"activation": "relu", "init": "kaiming", "depth": 8}
_TRAP: dict[str, Any] = {**_SMALL, "clip": "norm", "steps": 5}


def _lesson(
    kind: str,
    row: str,
    title: str,
    params: Params,
    question: str,
    choices: dict[str, str],
    answer: Callable[[Result], str],
    texts: tuple[str, str, str, str],
) -> tuple[str, Lesson]:
    view = "Training" if params.clip == "none" else "Clipping"
    return kind, Lesson(row, title, params, question, choices, answer, READINGS[kind], NAMES[kind], *texts, view=view)


def _among(choices: dict[str, str], *tests: bool) -> str:
    """The choice at the first test that holds."""
    return list(choices)[tests.index(True)]


_TURNS = {
    "it stays exactly": "One factor for all values keeps the direction; each value cut on its own does not.",
    "it turns by some 50 degrees": "Values beyond the limit are cut and the small ones stay, so the large components lose weight.",
    "it is reversed": "Cutting keeps every sign, so the angle stays below 90 degrees.",
}
_NORM_KEEPS = {
    "they keep their own size": "The factor is one number for all parameters: limit / norm of everything together.",
    "they shrink by the same factor": "That is what one factor for the whole gradient means.",
    "they become zero": "They are multiplied by about 0.1, not by 0.",
}
_BAD = {
    "it is set to the limit": "The factor is limit / inf = 0, and 0 · inf is NaN: nothing is set to the limit.",
    "it becomes NaN, the others zero": "Look at the factor: limit / inf.",
    "the step is skipped": "Only a GradScaler skips steps. clip_grad_norm_ goes on unless error_if_nonfinite is set.",
}
_OVERFLOWS = {
    "10^20, the true norm": "It is computed in the gradient's own dtype, and the square of 10^20 is beyond float32.",
    "infinity": "That takes a square beyond the largest float32, 3·10^38.",
    "NaN": "inf alone is not NaN: no inf − inf and no 0 · inf occurs in a sum of squares.",
}
_EXHAUSTED = {
    "about 10": "That is the norm of the gradients. It would need the parameters to be read again.",
    "0": "A generator can be read once. After that it is empty, and an empty list has norm 0.",
    "an error": "Since torch 2.6 there is a warning, not an error.",
}
_SIGN = {
    "an error is raised": "The limit is not checked.",
    "nothing is clipped": "The factor is limit / norm, which is below 1, so it is applied, with its sign.",
    "the gradient is turned round": "A negative factor turns every component round.",
}
_ZERO = {
    "clipping is off": "Several trainers take 0 so. clip_grad_norm_ multiplies by 0 / norm.",
    "every gradient becomes zero": "The factor is 0 / norm = 0.",
    "an error is raised": "0 is accepted like any limit.",
}
_ORDER = {
    "1, the limit": "It is 1 right after clipping, and then the scaler divides by 65,536.",
    "about 1.5e-05": "Clip to 1, then divide by 65,536.",
    "10, as without clipping": "The scaled norm is 65,536 times larger, so it is surely clipped.",
}
_SUMMED = {
    "the same": "The mean divides by the batch size, the sum does not.",
    "64 times larger": "64 samples are added instead of averaged.",
    "8 times larger": "√64 would hold for independent directions; here every value is multiplied by 64 exactly.",
}
_HIDDEN = {
    "it falls as usual": "A step of length lr · limit = 10 is far too long here, clipped or not.",
    "it becomes NaN": "Without clipping it does, within three steps. Clipping bounds the length of each step.",
    "it does not get better than guessing": "Steps that are bounded and still too long jump about without arriving.",
}
_HEALTHY = {
    "almost never": "The norm at the first step is 10, the limit is 1.",
    "nearly always": "The limit is below the usual norm. Clipped steps alone are no sign of a fault.",
}


def _loss_choice(result: Result) -> str:
    loss = READINGS["final loss"](result)
    return _among(_HIDDEN, loss < 1, loss != loss, True)


CLIP_LESSONS: tuple[tuple[str, Lesson], ...] = (
    _lesson(
        "cosine", "N3", "clipping by norm: one factor for all", Params(**_TRAP),
        "The norm of all gradients is about 10, the limit 1. What happens to layers whose own gradient is small?",
        _NORM_KEEPS,
        lambda r: _among(_NORM_KEEPS, READINGS["cosine"](r) < 0.999, READINGS["norm after"](r) > 0, True),
        ("What clip_grad_norm_ does, and what it returns.",
         "It computes one norm over all gradients as if they were one vector and multiplies all of them by limit / norm when that is below 1. It returns the norm before.",
         "Cosine 1: the direction is kept. Returned 10.06, afterwards 1. A cosine below 1 would prove this wrong.",
         "Log what it returns: it is the gradient norm for free. Clip per layer only when one layer is known to be the culprit."),
    ),
    _lesson(
        "cosine", "N3", "clipping by value turns the gradient", Params(**_SMALL, clip="value", clip_limit=0.01, steps=5),
        "Every value of the gradient is cut to ±0.01. What happens to the direction of the whole?",
        _TURNS,
        lambda r: _among(_TURNS, READINGS["cosine"](r) > 0.999, READINGS["cosine"](r) > 0, True),
        ("How clipping by value differs from clipping by norm.",
         "Each value is cut on its own: large components shrink, small ones stay. The step no longer points where the loss falls fastest.",
         "The cosine between before and after is about 0.65. It would be 1 if the direction were kept.",
         "Prefer the norm. Values are cut where single huge entries are expected, and then the limit should touch few of them."),
    ),
    _lesson(
        "zeroed layers", "N3", "one infinite gradient", Params(**_TRAP, trap="inf"),
        "One value in the middle layer's gradient is infinite. What does clip_grad_norm_ do with it?",
        _BAD,
        lambda r: _among(_BAD, False, READINGS["zeroed layers"](r) > 0, True),
        ("What clipping does when a gradient is not finite.",
         "The norm is inf, the factor limit / inf = 0: finite gradients become 0, and inf · 0 is NaN.",
         "Seven of eight layers get a gradient of exactly 0, the eighth has a NaN. No error is raised; the loss is NaN from the next step on.",
         "Check the returned norm before the step, or pass error_if_nonfinite=True. A GradScaler does the check for you."),
    ),
    _lesson(
        "returned", "N3", "squares that overflow", Params(**_TRAP, trap="overflow"),
        "One gradient is 10^20, which float32 can hold. Which norm does clip_grad_norm_ return?",
        _OVERFLOWS,
        lambda r: _among(_OVERFLOWS, READINGS["returned"](r) < float("inf"), READINGS["returned"](r) == float("inf"), True),
        ("Why a norm can be infinite when every value is finite.",
         "The 2-norm adds squares in the dtype of the gradients. Beyond √(3.4·10^38) = 1.8·10^19 a square is infinite, and the factor becomes 0.",
         "Returned: infinity, against the true norm from float64. After clipping every gradient is 0.",
         "Use norm_type=inf for huge values, compute norms in float64 when looking for a fault, and find out where the value came from."),
    ),
    _lesson(
        "returned", "N3", "an exhausted generator of parameters", Params(**_TRAP, trap="generator"),
        "params = model.parameters(); the sizes are counted with it; then clip_grad_norm_(params, 1.0). What does it return?",
        _EXHAUSTED,
        lambda r: _among(_EXHAUSTED, READINGS["returned"](r) > 0, READINGS["returned"](r) == 0, True),
        ("Why a training can run for weeks with clipping that never clips.",
         "model.parameters() is a generator: read once, it is empty. Clipping nothing returns 0.",
         "Returned 0 while the norm is 10, at every step, with one warning.",
         "A returned norm of exactly 0 is never true for a network that learns: test for it. Keep list(model.parameters())."),
    ),
    _lesson(
        "cosine", "N3", "a negative limit", Params(**_TRAP, trap="negative"),
        "clip_grad_norm_(parameters, max_norm=-1.0). What happens?",
        _SIGN,
        lambda r: _among(_SIGN, False, READINGS["cosine"](r) > 0, True),
        ("What is not validated.",
         "The factor is limit / norm, clamped from above to 1. A negative limit gives a negative factor.",
         "Cosine −1: the optimizer climbs the loss, which rises.",
         "Validate limits where they are read. This page does not accept one below 0."),
    ),
    _lesson(
        "norm after", "N3", "a limit of 0 is not off", Params(**_TRAP, clip_limit=0.0),
        "A configuration says clip_limit: 0 and means no clipping. What does clip_grad_norm_ do?",
        _ZERO,
        lambda r: _among(_ZERO, READINGS["norm after"](r) > 0, READINGS["norm after"](r) == 0),
        ("How conventions of trainers and of torch differ.",
         "The factor is 0 / norm. Nothing is switched off; every gradient is zero.",
         "The norm afterwards is 0 and the loss does not move.",
         "Do not call it when clipping is off, or use float('inf') to measure without clipping."),
    ),
    _lesson(
        "norm after", "N3", "clipping before unscaling", Params(**_TRAP, trap="unscale"),
        "A GradScaler multiplies the loss by 65,536. Clipping to 1 comes before scaler.unscale_. Which norm does the optimizer see?",
        _ORDER,
        lambda r: _among(_ORDER, 0.1 < READINGS["norm after"](r) < 2, READINGS["norm after"](r) < 1e-3, True),
        ("In which order mixed precision training scales, clips and steps.",
         "The gradients are still multiplied by the scale when they are clipped; dividing by it afterwards takes what clipping left.",
         "The returned norm is 65,536 times too large, and what the optimizer sees is 1.5e-05: training seems to stand still.",
         "scaler.unscale_(optimizer), then clip, then scaler.step(optimizer), then scaler.update(). Each once a step."),
    ),
    _lesson(
        "total norm", "N3", "a sum in the place of the mean", Params(**_SMALL, reduction="sum", steps=5, lr=0.001),
        "The losses of 64 samples are added instead of averaged. How large is the norm of the gradient now?",
        _SUMMED,
        lambda r: _among(_SUMMED, READINGS["total norm"](r) < 20, READINGS["total norm"](r) > 320, True),
        ("What a gradient norm can be compared with.",
         "The gradient of a sum is the sum of the gradients, 64 times that of the mean.",
         "About 640 against 10. A limit that was right for one is wrong for the other by the batch size.",
         "State reduction and batch size with every norm, and set the limit again when either changes."),
    ),
    _lesson(
        "clipped share", "N4", "clipping hides a bad learning rate", Params(**_SMALL, clip="norm", lr=10.0, steps=40),
        "Without clipping this learning rate gives NaN after three steps. With clipping at 1, where is the loss after 40?",
        _HIDDEN,
        _loss_choice,
        ("Whether clipping cures an unstable training.",
         "Clipping bounds the length of a step by lr · limit. It does not make the step right: with lr = 10 each one jumps across the valley.",
         "Most steps are clipped and the loss is no better than guessing among ten classes, ln 10 = 2.3. With a hundredth of the learning rate it falls to 0.13.",
         "Look at the share of clipped steps together with the loss. Clipping is for rare spikes; a limit that is always reached asks for a smaller step."),
    ),
    _lesson(
        "final loss", "N4", "the same learning rate without clipping", Params(**_SMALL, lr=10.0, steps=40),
        "The same network and learning rate without clipping. Where is the loss after 40 steps?",
        _HIDDEN,
        _loss_choice,
        ("What clipping was hiding.",
         "The first step multiplies weights by large gradients, the next gradients are larger still: within three steps numbers leave the range of float32.",
         "The first infinity appears at step 3, with its layer and operation; from then on everything is NaN.",
         "Lower the learning rate by ten until the loss falls, then decide whether spikes are left to clip."),
    ),
    _lesson(
        "clipped share", "N4", "a good learning rate, and still clipped", Params(**_SMALL, clip="norm", lr=0.1, steps=40),
        "Learning rate 0.1, the loss falls well. How often is the gradient clipped at 1?",
        _HEALTHY,
        lambda r: _among(_HEALTHY, READINGS["clipped share"](r) < 0.5, True),
        ("What the share of clipped steps says, and what it does not.",
         "The limit is below the usual norm, so every step has length lr · limit: gradient descent with a fixed step length.",
         "All steps are clipped, and the loss falls from 3.0 to 0.13. The share alone does not tell a bad learning rate; share and loss together do.",
         "Set the limit a little above the usual norm, so that clipping catches spikes and leaves the rest alone."),
    ),
)  # fmt: skip
