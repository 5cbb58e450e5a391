"""From an error of a visitor's model to what it means and what to change."""

from __future__ import annotations

import re

from lab.contract import Fault
from lab.program.own_model import OwnModelError
from lab.program.run import program_line

_MISSING_KERNEL = r"could not create a primitive"
_KNOWN = (
    (
        r"CheckpointError.*different metadata",
        "The second forward of a checkpointed segment did not make the same tensors as the first, so backward would use "
        "the wrong ones. Something in the segment changes between calls: a counter, a random shape, a cache.",
        "Make the segment a pure function of its inputs, or leave it out of checkpointing.",
    ),
    (
        r"CheckpointError",
        "The second forward of a checkpointed segment saved another number of tensors than the first.",
        "Make the segment take the same path both times.",
    ),
    (
        r"must have the same dtype|expected .* dtype|expected scalar type",
        "A tensor that came out of autocast in half precision meets float32 parameters outside it.",
        "Put the whole forward under autocast, or call h.float() where it ends.",
    ),
    (
        r"DataDependentOutputException|DynamicOutputShapeException",
        "A prediction has shapes and no values: the program reads a value (item, bool, nonzero), which does not exist.",
        "Measure instead of predicting, or take the value from outside the model.",
    ),
    (
        _MISSING_KERNEL,
        "oneDNN, which runs this operation on a CPU, has no kernel for it in this dtype on this processor.",
        "Set precision to fp32 or bf16_autocast.",
    ),
    (r"OwnModelError", "The program ran. What it left does not make a measurement yet.", ""),
)  # fmt: skip


def fault_of(kind: str, message: str, line: int | None) -> Fault:
    """The fault with its explanation, where there is one."""
    for pattern, explanation, repair in _KNOWN:
        if re.search(pattern, f"{kind}: {message}", re.DOTALL):
            return Fault(kind, message, line, explanation, repair)
    return Fault(kind, message, line)


def fault_of_error(error: BaseException) -> Fault:
    """The fault of what a model raised while it was trained."""
    line = error.line if isinstance(error, OwnModelError) else program_line(error.__traceback__)
    return fault_of(type(error).__name__, str(error)[:4000], line)


def is_missing_kernel(error: BaseException) -> bool:
    """The library has no kernel for this operation here: a fact of the processor, whoever wrote the model."""
    return re.search(_MISSING_KERNEL, str(error)) is not None


def metadata_pairs(message: str) -> list[tuple[int, str, str]]:
    """(position, saved, recomputed) of the tensors that a CheckpointError names."""
    found = re.findall(
        r"tensor at position (\d+):\s*saved metadata: (\{.*?\})\s*recomputed metadata: (\{.*?\})", message, re.DOTALL
    )
    return [(int(position), saved, recomputed) for position, saved, recomputed in found]
