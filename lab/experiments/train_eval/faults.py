"""From an error of torch to what it means and what to change."""

from __future__ import annotations

from lab.contract import Fault
from lab.experiments.train_eval.schema import Params

_ONE_VALUE = "Expected more than 1 value per channel when training"


def batchnorm_fault(error: ValueError, params: Params) -> Fault:
    """The batch that BatchNorm refused."""
    explanation, repair = explained(str(error))
    if not params.track_running_stats:
        explanation += " Without running statistics the layer uses the batch in eval mode too, so eval() does not help."
    return Fault("ValueError", str(error), explanation=explanation, repair=repair)


def program_fault(kind: str, message: str, line: int | None) -> Fault:
    """A fault of the visitor's program or model."""
    explanation, repair = explained(message)
    return Fault(kind, message, line, explanation, repair)


def explained(message: str) -> tuple[str, str]:
    """(explanation, repair); empty when the message says it all."""
    if _ONE_VALUE in message:
        return (
            "One value per channel has no variance, so train mode cannot normalise it. The last batch of an epoch is the "
            "usual cause: 257 samples in batches of 64 leave one over.",
            "eval() for prediction; drop_last=True in the DataLoader for training; GroupNorm or LayerNorm for tiny batches.",
        )
    if "Missing key(s) in state_dict" in message and "num_batches_tracked" in message:
        return (
            "num_batches_tracked is the counter that momentum=None needs. A state dict without version metadata is filled "
            "in; one with metadata counts as broken.",
            "Add the key, or load with strict=False.",
        )
    return "", ""
