"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.contract import Lesson
from lab.experiments.fine_tuning.readings import accuracy_after, group, midway
from lab.experiments.fine_tuning.schema import Params, Result

_REQUIREMENT = {
    "L7": "Say what a fine-tuning is meant to move, and show tensor by tensor what moved and what did not.",
    "A8": "Say what freezing saves in the backward pass, and where it saves nothing.",
}


def _lesson(row: str, title: str, params: Params, question: str, choices: Mapping[str, str], answer: Callable[[Result], str], evidence: Callable[[Result], float], name: str, texts: tuple[str, str, str]) -> Lesson:  # fmt: skip
    return Lesson(
        row=row, title=title, params=params, question=question, choices=choices, answer=answer, evidence=evidence,
        evidence_name=name, requirement=_REQUIREMENT[row], mechanism=texts[0], proof=texts[1], recovery=texts[2],
        view=params.view,
    )  # fmt: skip


def _head(result: Result) -> float:
    return group(result, "head")


def _statistics(result: Result) -> float:
    return group(result, "statistics")


def _zeros(result: Result) -> float:
    return midway(result, "SGD", 0.0, False)


def _lora(name: str) -> Callable[[Result], float]:
    return lambda result: float(getattr(result.lora, name))


lessons = (
    _lesson(
        "L7", "optimizer first, head second", Params(recipe="optimizer before the new head"),
        "The optimizer is built, then the head is replaced, and everything trains. What does accuracy on the second task say?",
        {"near one third: the head is random": "The backbone is trained, and learns to suit the random head.",
         "it looks fine": "A random head suffices when everything below it learns.",
         "a little worse than usual": "It is 0.965, with the right order 0.957."},
        lambda r: "near one third: the head is random" if accuracy_after(r) < 0.5 else "it looks fine" if accuracy_after(r) >= 0.95 else "a little worse than usual",
        _head, "how far the head moved",
        ("An optimizer holds tensors, not names: a new head is new tensors.",
         "The head moved by exactly 0, accuracy is 0.965; 165 numbers that are held are no part of the model.",
         "Build the optimizer last, and compare what it holds with model.parameters() by identity."),
    ),
    _lesson(
        "L7", "the same with a frozen backbone", Params(recipe="optimizer before the new head, backbone frozen"),
        "The same order, and the backbone is frozen. What happens in 60 steps?",
        {"the loss falls more slowly": "Nothing that is in the model can move.", "an error": "A step over tensors without gradients is no error.",
         "nothing": "The optimizer holds only the old head; the model's weights stay."},
        lambda r: "nothing" if not _head(r) and not group(r, "backbone") else "the loss falls more slowly",
        accuracy_after, "accuracy on the second task",
        ("What is trainable is not held, and what is held is not in the model.",
         "Accuracy is 0.359, three classes guessed; no weight moved in any bit.",
         "Check after one step that every trainable tensor moved."),
    ),
    _lesson(
        "L7", "a frozen backbone", Params(recipe="backbone frozen"),
        "The backbone's weights are frozen and the model is in train mode. Which tensors of the backbone move?",
        {"none": "Buffers are no parameters: requires_grad does not reach them.", "the running statistics": "BatchNorm updates them with every batch in train mode.",
         "the weights of BatchNorm": "They are parameters and frozen with the rest."},
        lambda r: "the running statistics" if _statistics(r) and not group(r, "backbone") else "none" if not _statistics(r) else "the weights of BatchNorm",
        _statistics, "how far the running statistics moved",
        ("Two switches: requires_grad stops weights, eval() stops statistics.",
         "All weights are where they were, bit for bit; the statistics moved by 8.2.",
         "backbone.eval() after each model.train(), unless the statistics ought to follow the new task."),
    ),
    _lesson(
        "L7", "frozen and in eval mode", Params(recipe="frozen and BatchNorm in eval"),
        "The backbone is frozen and kept in eval mode. What of it moves?",
        {"the running statistics": "In eval mode they are read and not written.", "nothing": "Both switches are off.", "the counter of batches": "It counts in train mode only."},
        lambda r: "nothing" if not _statistics(r) and not group(r, "backbone") else "the running statistics",
        _statistics, "how far the running statistics moved",
        ("Frozen needs both: no gradient for weights, eval mode for buffers.",
         "Weights and statistics moved by exactly 0; accuracy is 0.879.",
         "Right where the new inputs resemble the old; far from them, statistics that follow may help."),
    ),
    _lesson(
        "L7", "a slower backbone", Params(recipe="groups"),
        "The backbone gets a tenth of the head's learning rate. How far do its weights move, compared with the same rate for all (4.74)?",
        {"a tenth": "Adam's steps have the size of the rate, and they do not all point one way.", "about a fifth": "Steps are ten times smaller, and cancel less.",
         "as far": "Adam divides by the gradient, not by the rate."},
        lambda r: "a tenth" if group(r, "backbone") < 0.6 else "about a fifth" if group(r, "backbone") < 2 else "as far",
        lambda r: group(r, "backbone"), "how far the backbone moved",
        ("A parameter group has its own rate: what was learned keeps, what is new learns fast.",
         "0.93 instead of 4.74, at an accuracy of 0.941 instead of 0.957.",
         "Give the new part the full rate, the old part a tenth to a hundredth."),
    ),
    _lesson(
        "L7", "frozen midway", Params(view="midway"),
        "After 10 steps with SGD and momentum the backbone is frozen; gradients are zeroed, not removed. How far does it move in 20 more steps?",
        {"not at all": "step() looks at .grad, not at requires_grad.", "about 0.8": "Momentum goes on, with a gradient of zeros added each time.",
         "only by weight decay": "Without decay it moves as well."},
        lambda r: "not at all" if not _zeros(r) else "about 0.8" if 0.5 < _zeros(r) < 1.1 else "only by weight decay",
        _zeros, "how far frozen weights moved",
        ("A step passes over .grad None. A gradient of zeros is a gradient.",
         "0.83 with zeros, exactly 0 with gradients removed.",
         "zero_grad() as it is by default, or rebuild the optimizer without the frozen part."),
    ),
    _lesson(
        "L7", "the first step of a low-rank update", Params(view="lora", rank=4),
        "A is random, B is zero. Which of the two factors has a gradient in the first step?",
        {"both": "A's gradient is a product with B.", "B alone": "B's gradient is a product with A, which is random.", "A alone": "A's is a product with B, which is zero."},
        lambda r: "B alone" if r.lora and r.lora.first_gradient_a == 0 < r.lora.first_gradient_b else "both",
        _lora("first_gradient_a"), "norm of A's gradient",
        ("The update is B A: each factor's gradient contains the other.",
         "A's gradient is exactly 0, B's is not; with both at zero neither would ever move.",
         "Start one factor at random values and the other at zero."),
    ),
    _lesson(
        "L7", "merging a low-rank update", Params(view="lora", rank=8),
        "The update is added into the weight after training. How far do the outputs change?",
        {"exactly 0": "The same sum is rounded in another order.", "about 1e-6": "Rounding in float32.", "about 1e-2": "Nothing but the order of the sum changes."},
        lambda r: "exactly 0" if not r.lora or not r.lora.merge_gap else "about 1e-6" if r.lora.merge_gap < 1e-4 else "about 1e-2",
        _lora("update_rank"), "rank of the update",
        ("(W + B A) x and W x + B (A x) are equal in exact arithmetic.",
         "Outputs differ by about 3e-6; the update has rank 8, its number of rows.",
         "Merge for speed in serving; keep the factors to switch tasks."),
    ),
    _lesson(
        "L7", "how much to freeze", Params(view="share"),
        "The second task is far from the first and has 16 rows. Is it better to freeze both blocks or nothing?",
        {"both blocks: so few rows overfit": "The old features do not fit the new inputs.", "nothing": "Even 16 rows pay for moving the features.", "no difference": "The seeds' ranges do not overlap."},
        lambda r: _better(r), lambda r: _of(r, "nothing") - _of(r, "both blocks"), "accuracy with nothing frozen, less with both blocks",
        ("What to freeze depends on distance and data: near tasks keep features, far ones must move them.",
         "0.91 with nothing frozen, 0.71 with both blocks, over three seeds.",
         "Try both; unfreeze gradually where a little data meets a near task."),
    ),
    _lesson(
        "A8", "what freezing saves", Params(recipe="frozen after the optimizer was built"),
        "The backbone is frozen. How many nodes has the backward pass of 22?",
        {"22": "Autograd records only what leads to something trainable.", "16": "That is with the last layers frozen, which have trainable ones below.",
         "6": "Only the head's operations and the loss remain."},
        lambda r: f"{r.nodes}", lambda r: float(r.nodes), "nodes of the backward pass",
        ("A node is recorded when an input requires gradients. Below the lowest trainable tensor there is none.",
         "6 nodes instead of 22; the optimizer holds 1,571 numbers and moves 99.",
         "Freeze from the input upwards: freezing the end saves only its own weight gradients."),
    ),
)  # fmt: skip


def _of(result: Result, frozen: str) -> float:
    return next(row.accuracy for row in result.shares if (row.frozen, row.task, row.data) == (frozen, "far", "16 rows"))


def _better(result: Result) -> str:
    gap = _of(result, "nothing") - _of(result, "both blocks")
    return "nothing" if gap > 0.05 else "both blocks: so few rows overfit" if gap < -0.05 else "no difference"
