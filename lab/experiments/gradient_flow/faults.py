"""What goes wrong in a visitor's model, in plain words."""

from __future__ import annotations

import re

import torch

from lab.contract import Fault
from lab.program.own_model import OwnModelError
from lab.program.run import message_of, program_line

_KNOWN = [
    (
        r"unscale_\(\) has already been called",
        "A GradScaler divides the gradients by its scale once per step; update() makes it ready for the next, also when a step is skipped.",
        "Call unscale_ once, then clip, then step, then update().",
    ),
    (
        r"'NoneType' object has no attribute '(norm|data|abs|item)'",
        "A .grad is None: before the first backward, after zero_grad() (it sets None by default), for a frozen parameter, and for one that was not used.",
        "Read gradients between backward() and zero_grad(), and skip those that are None.",
    ),
    (
        r"does not require grad and does not have a grad_fn|has no graph",
        "The loss has no way back to a parameter: everything is frozen, detached, or ran under no_grad.",
        "Compute the loss from model(inputs) with gradients on, and leave at least one parameter with requires_grad=True.",
    ),
    (
        r"[Aa]ttempting to unscale FP16 gradients",
        "A GradScaler expects parameters in float32; half precision belongs into autocast.",
        "Keep the model in float32 and run the forward under torch.autocast.",
    ),
    (
        r"total norm of order .* is non-finite",
        "clip_grad_norm_ with error_if_nonfinite=True refuses to scale by a factor that is NaN or zero.",
        "Find the layer whose gradient is not finite, or skip the step.",
    ),
    (
        r"mat1 and mat2 shapes cannot be multiplied|size of tensor a .* must match|Expected input batch_size",
        "The shapes do not fit together.",
        "Print the shapes on the line before. Inner sizes of a matrix product must be equal.",
    ),
    (
        r"must have the same dtype|expected .* same dtype|expected scalar type",
        "Two tensors have different dtypes, and this operation does not convert.",
        "Convert inputs and model to one dtype.",
    ),
    (
        r"inplace operation",
        "A tensor that backward needs was overwritten after it had been saved.",
        "Use the operation that makes a new tensor. The page on the autograd graph shows which line saved it and which wrote.",
    ),
    (r"^OwnModelError", "The program ran. What it left does not make a measurement yet.", ""),
    (r"^TimeLimit", "The program did not come to an end in time.", "Use a smaller model or batch, or fewer steps."),
    (r"^MemoryLimit", "The program asked for more memory than one run may use.", "Use a smaller model or batch."),
    (r"^Refused", "", "The names torch, nn, F and math are there without import."),
    (r"^(SyntaxError|IndentationError|TabError)", "Python cannot read the program at this place.", "Look at the mark, and at the end of the line before it."),
    (r"^NameError", "The name is not defined at this point.", "Names torch, nn, F and math are given; everything else must be assigned first."),
]  # fmt: skip
NO_PROGRAM = Fault(
    "OwnModelError",
    "There is no program yet.",
    explanation="A program for this page defines model and batch, and where the default does not fit, loss(model, batch).",
    repair="Begin with the preset 'a model of your own' and change it.",
)


def fault_of(kind: str, message: str, line: int | None) -> Fault:
    """With the explanation that is known for it."""
    for pattern, explanation, repair in _KNOWN:
        if re.search(pattern, f"{kind}: {message}"):
            return Fault(kind, message, line, explanation, repair)
    return Fault(kind, message, line)


def fault_of_error(error: BaseException) -> Fault:
    """Of what the visitor's model or loss raised while it was measured."""
    if isinstance(error, OwnModelError):
        return fault_of("OwnModelError", str(error), error.line)
    message = message_of(error)
    memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in message
    kind = "MemoryLimit" if memory else type(error).__name__
    return fault_of(kind, message, program_line(error.__traceback__))
