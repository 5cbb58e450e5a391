"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.contract import Lesson
from lab.experiments.gradient_modes.programs import (
    CACHE,
    CLONE,
    DETACHED,
    ENABLE,
    GAN,
    GENERATOR,
    NOTHING,
    PLUS_TIMES,
)  # fmt: skip
from lab.experiments.gradient_modes.readings import value
from lab.experiments.gradient_modes.schema import Params, Result

_G1 = "Say which switch does what: eval() changes what modules compute, the gradient mode what autograd records."
_G2 = "Say which later use of a tensor the mode forbids, and where the tensor was born."


def _program(code: str) -> Params:
    return Params(code=code)


def _lesson(row: str, title: str, params: Params, question: str, choices: dict[str, str], answer: Callable[[Result], str], evidence: Callable[[Result], float], name: str, texts: tuple[str, str, str]) -> Lesson:  # fmt: skip
    return Lesson(
        row=row, title=title, params=params, question=question, choices=choices, answer=answer, evidence=evidence,
        evidence_name=name, requirement=_G1 if row == "G1" else _G2, mechanism=texts[0], proof=texts[1], recovery=texts[2],
        view=params.view,
    )  # fmt: skip


def _named(name: str) -> Callable[[Result], float]:
    return lambda result: value(result, name)


def _pick(name: str, words: dict[float, str]) -> Callable[[Result], str]:
    return lambda result: words[value(result, name)]


def _birth_line(result: Result) -> float:
    return float(result.fault.sites[0].line) if result.fault and result.fault.sites else float("nan")


def _eval_bytes(result: Result) -> float:
    return float(next(c.saved_bytes for c in result.matrix23 if not c.training and c.mode == "grad"))


def _ratio(result: Result) -> float:
    """Time of the forward in eval and grad, per time in train and no_grad."""
    cells: dict[Any, float] = {(c.training, c.mode): c.forward_s for c in result.matrix23}
    return cells[False, "grad"] / cells[True, "no_grad"]


lessons = (
    _lesson(
        "G2", "the cache of a validation", _program(CACHE),
        "A table is made lazily during a validation in inference mode, and training fails later. Which line is to blame?",
        {
            "the line that multiplies": "There the error is raised. The table that it multiplies with was born one call earlier.",
            "the line that calls backward": "The program does not get that far: the forward already fails, when it saves the table.",
            "the line that made the table": "The forward fails where the table is saved; it was born in inference mode before.",
        },
        lambda r: "the line that made the table" if r.fault and _birth_line(r) != r.fault.line else "the line that multiplies",
        _birth_line, "line where the tensor was born",
        ("A tensor made in inference mode stays an inference tensor. Multiplying saves it for backward, which is refused.",
         "The error is raised on line 10, the operand was born on line 9, under inference mode.",
         "Make caches outside the mode, or clone them there: a clone outside is a normal tensor."),
    ),
    _lesson(
        "G2", "enable_grad inside", _program(ENABLE),
        "enable_grad stands inside no_grad and inside inference mode. In how many of the two is the product recorded?",
        {"0": "enable_grad does undo no_grad.", "1": "It undoes no_grad alone.", "2": "Inference mode is more than a switch of gradients: enable_grad leaves it on."},
        lambda r: f"{value(r, 'recorded'):g}", _named("recorded"), "recorded products of two",
        ("no_grad is the gradient switch. Inference mode also makes new tensors without version counters, and that stays on.",
         "One of two: under no_grad the result has a node, in inference mode it has none and is an inference tensor.",
         "Use no_grad around what needs gradients inside, or leave with inference_mode(False)."),
    ),
    _lesson(
        "G2", "plus or times", _program(PLUS_TIMES),
        "An inference tensor is added to a parameter, then multiplied with it, in grad mode. How many of the two fail?",
        {"0": "Multiplying has to save the inference tensor for the gradient of the parameter.", "1": "Adding saves nothing, multiplying does.", "2": "Adding keeps nothing for backward, so nothing is refused."},
        lambda r: f"{value(r, 'errors'):g}", _named("errors"), "operations that fail",
        ("The derivative of a product needs the other factor, so autograd saves it; a sum needs nothing.",
         "The sum goes through with its backward, the product raises in the forward.",
         "Clone outside the mode before such a tensor meets parameters."),
    ),
    _lesson(
        "G1", "eval is not no_grad", Params(view="matrix"),
        "The network is in eval mode, gradients are enabled. How much does its forward keep for backward?",
        {"nothing": "eval() only tells Dropout and BatchNorm how to compute: autograd records as before.", "less than in train": "Dropout's masks and the batch statistics are gone; activations are kept.", "the same": "Dropout saves no masks in eval mode."},
        lambda r: "nothing" if not _eval_bytes(r) else "less than in train" if _eval_bytes(r) < next(c.saved_bytes for c in r.matrix23 if c.training and c.mode == "grad") else "the same",
        _eval_bytes, "bytes kept in eval mode",
        ("The two switches are independent: eval() is read by modules, the gradient mode by autograd.",
         "In eval mode 393,216 B are kept, in train mode 919,552 B, under no_grad none.",
         "For validation use both: model.eval() and inference_mode() or no_grad()."),
    ),
    _lesson(
        "G1", "eval or the mode", Params(view="matrix", repeats=8),
        "Which makes a forward of this network faster on this machine: eval() or no_grad?",
        {"eval()": "Dropout draws no numbers, BatchNorm computes no statistics.", "no_grad": "Recording a node costs about a microsecond; the arithmetic stays.", "about the same": "Not recording saves little; what eval() leaves out is arithmetic."},
        lambda r: "eval()" if _ratio(r) < 0.9 else "no_grad" if _ratio(r) > 1.1 else "about the same",
        _ratio, "time in eval and grad, per time in train and no_grad",
        ("Recording costs little beside the kernels. Random numbers and batch statistics are kernels of their own.",
         "The ratio of the shortest times, from rounds in which all six cases take turns.",
         "Use no_grad for memory; expect its time to show with many tiny operations only."),
    ),
    _lesson(
        "G2", "detach the target", _program(DETACHED),
        "A perceptual loss through frozen features: which detach leaves the image without a gradient?",
        {"of the target": "The target never had a graph: nothing changes.", "of the prediction": "The way to the image goes through the prediction.", "of either": "The target is not on the way from the loss to the image."},
        lambda r: "of either" if not value(r, "with_target") else "of the prediction" if not value(r, "with_prediction") else "of the target",
        _named("with_target"), "the image has a gradient with the target detached",
        ("requires_grad=False freezes weights and lets gradients through. detach cuts the tensor off.",
         "With the target detached the image has a gradient; with the prediction detached the loss has no graph.",
         "Freeze the network by requires_grad_(False), keep the prediction attached."),
    ),
    _lesson(
        "G2", "a generator inside no_grad", _program(GENERATOR),
        "A generator is suspended inside its no_grad block. Are gradients enabled outside?",
        {"yes": "The generator has not left its with block: the mode belongs to the thread.", "no": "The mode leaks to the caller until the generator goes on."},
        lambda r: "yes" if value(r, "enabled") else "no", _named("enabled"), "gradients enabled outside",
        ("The mode is a state of the thread. A suspended with block has not run its exit.",
         "After the first next() gradients are off outside; the loss made there has no node.",
         "End the block before the yield, or decorate the generator: torch switches at every yield then."),
    ),
    _lesson(
        "G2", "clone inside", _program(CLONE),
        "An inference tensor is cloned before its mode is left. Is the clone a normal tensor?",
        {"yes": "Whatever is made inside the mode is an inference tensor, a clone too.", "no": "The mode in force at its birth decides."},
        lambda r: "no" if value(r, "inside") else "yes", _named("inside"), "the clone is an inference tensor",
        ("What decides is the mode at the birth of the tensor, not what it was copied from.",
         "The clone made inside is an inference tensor, the one made outside is not.",
         "Clone after the mode was left."),
    ),
    _lesson(
        "G2", "nothing requires gradients", _program(NOTHING),
        "SGD gets a tensor that was made under no_grad and does not require gradients. What happens in ten steps?",
        {"an error": "The optimizer checks for leaves; a tensor that needs no gradient is one.", "it is trained": "Without requires_grad no backward fills its gradient.", "nothing moves": "A step passes over what has no gradient."},
        lambda r: "nothing moves" if value(r, "moved") == 0 else "it is trained", _named("moved"), "numbers that moved",
        ("An optimizer skips tensors whose .grad is None, without a word.",
         "Ten steps, 0 numbers changed, no error.",
         "After building the optimizer, check that every tensor in it requires gradients."),
    ),
    _lesson(
        "G2", "the step of a GAN", _program(GAN),
        "The discriminator is trained on fakes that are not detached. Does the generator get gradients?",
        {"yes": "The graph reaches back through the fake.", "no": "Which optimizer steps next does not matter to backward: it fills every leaf behind the loss."},
        lambda r: "yes" if value(r, "filled") > value(r, "filled_detached") else "no", _named("filled"), "generator parameters with a gradient",
        ("backward goes to every leaf behind the loss, also those that another optimizer owns.",
         "Without detach both parameters of the generator have a gradient, with it none.",
         "D(fake.detach()) in the discriminator's step; clear the generator's gradients before its own."),
    ),
)  # fmt: skip
