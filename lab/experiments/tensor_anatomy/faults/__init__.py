"""Why a program ended early: operands, shapes, the axis that does not fit, and the line where each of them came from."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from lab.contract import Fault
from lab.experiments.tensor_anatomy.faults import kinds, shapes
from lab.experiments.tensor_anatomy.faults.told import Explained, births, described
from lab.experiments.tensor_anatomy.watch.calls import Refused
from lab.experiments.tensor_anatomy.watch.words import said
from lab.program.explain import Row, explain_fault
from lab.records.program import Ended
from lab.records.tensors import Note

_ROWS = (
    Row(
        r"not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver",
        "This PyTorch sees no CUDA device, so no tensor can go to one.",
        "Ask which device there is: torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device('cpu').",
    ),
    Row(
        r"Cannot copy out of meta tensor",
        "A meta tensor has a shape and a dtype, but no data that could be copied.",
        "Use module.to_empty(device=...) and then load or initialise the values.",
    ),
    Row(
        r"element of tensors does not require grad|only one element tensors can be converted|cannot be converted to Scalar",
        "item(), float() and int() need a tensor with exactly one element.",
        "Reduce it first (.sum(), .mean()), index one element, or use .tolist().",
    ),
    Row(
        r"Boolean value of Tensor with more than one value is ambiguous",
        "if, and, or and not need one truth value; this tensor has several.",
        "Say which is meant: .all() or .any(); for element by element use &, | and ~.",
    ),
    Row(
        r"mean\(\): could not infer output dtype|mean\(\): .* should be floating point",
        "The mean of whole numbers is no whole number, and torch does not choose a format for it.",
        "Convert first: t.float().mean(), or mean(dtype=torch.float32).",
    ),
    Row(
        r"Got unsupported ScalarType BFloat16",
        "NumPy has no bfloat16.",
        "Convert first: t.float().numpy().",
    ),
    Row(
        r"some elements of the input tensor and the written-to tensor refer to a single memory location",
        "Source and target of this write overlap in memory, and which element would be read after it was written is not defined.",
        "Copy the source first: a[1:] = a[:-1].clone().",
    ),
)


def fault_of(ended: Ended | None, refused: list[Refused], source: str) -> Fault | None:
    """The fault of a program that ended early, with its cause where the record shows it."""
    if ended is None:
        return None
    plain = explain_fault(ended, rows=_ROWS)
    found = next((r for r in reversed(refused) if r.message[:200] == ended.message[:200]), None)
    try:
        why = explain(found, source) if found else None
    except Exception:
        logging.getLogger(__name__).exception("%s was not explained", ended.type)
        why = None
    if why is None:
        return Fault(ended.type, ended.message, ended.line, plain.explanation, plain.repair)
    told = f"{plain.explanation} {why.text}" if why.only_listed and plain.explanation else why.text
    text = f"It was raised in {ended.module}. {told}" if ended.module and not told.startswith("It was raised") else told
    return Fault(ended.type, ended.message, ended.line, text, why.repair or plain.repair, why.sites)


def caught(ended: Ended | None, refused: list[Refused], source: str) -> tuple[Note, ...]:
    """Refusals that the program caught, with their causes; each line once."""
    found: dict[int | None, Note] = {}
    for one in refused:
        if (ended and one.message[:200] == ended.message[:200]) or one.line in found or len(found) == 3:
            continue
        try:
            why = explain(one, source)
        except Exception:
            logging.getLogger(__name__).exception("%s was not explained", one.type)
            continue
        if why is not None and not why.only_listed:
            evidence = {"op": said(one.op), "type": one.type, "text": why.text, "repair": why.repair}
            found[one.line] = Note("refused and caught", one.line, evidence, why.sites)
    return tuple(found.values())


def explain(refused: Refused, source: str) -> Explained | None:
    """The cause of one refusal; None where the record shows none."""
    for pattern, answer in _ANSWERS:
        if re.search(pattern, refused.message):
            found = answer(refused, source)
            if found is not None:
                return found
    return kinds.devices(refused, source) or _listed(refused)


def _listed(refused: Refused) -> Explained | None:
    """Nothing more is known than what went in."""
    shaped = kinds.unique(list(refused.states))
    if not shaped or not re.search(
        r"shape|size|dimension|dim |channels|expected .*D|out of range|broadcast|batch|elements|normalized",
        refused.message,
    ):
        return None
    text = f"Into {said(refused.op)} went {', '.join(described(s, refused) for s in shaped)}."
    return Explained(text, "", births(refused, shaped[:3]), only_listed=True)


_ANSWERS: tuple[tuple[str, Callable[[Refused, str], Explained | None]], ...] = (
    (r"view size is not compatible", shapes.view),
    (r"stride in the given numpy array is negative", kinds.negative_stride),
    (r"can't convert np\.ndarray of type|byte order|not a supported", kinds.array_dtype),
    (
        r"expected .* same dtype|must have the same dtype|expected scalar type|have the same dtype|Input type .* and (weight|bias) type",
        kinds.dtypes,
    ),
    (r"is not on the expected device|same device|at least two devices|Expected all tensors", kinds.devices),
    (r"single memory location", kinds.written_expanded),
    (r"single memory location", kinds.overlap),
    (
        r"cannot be multiplied|size mismatch, got|inconsistent tensor size|Expected size for first two dimensions|batch1|must match.*matmul",
        shapes.matmul,
    ),
    (
        r"must match the size of tensor b|not broadcastable|must match the existing size|shape mismatch|The size of tensor|doesn't match the broadcast shape",
        shapes.elementwise,
    ),
    (r"is invalid for input of size|invalid for input", shapes.numel),
    (r"index out of range|out of bounds", kinds.index),
    (r"dtype int32/int64 for index|used as indices must be|scalar types: Long", kinds.index_dtype),
    (r"Target .* is out of bounds", kinds.target_class),
    (r"Dimension out of range", shapes.dimension),
    (r"running_mean should contain|Given normalized_shape", shapes.features),
    (r"Expected target size", shapes.classes_last),
    (r"einsum\(\)", shapes.letters),
    (r"to have \d+ channels|Given groups=", shapes.channels),
    (
        r"Sizes of tensors must match except|stack expects each tensor|Tensors must have same number of dimensions",
        shapes.cat,
    ),
    (r"Expected input batch_size|size of input|Using a target size", shapes.elementwise),
)
