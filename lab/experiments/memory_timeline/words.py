"""Categories, phases and modules as they are written in sentences."""

from __future__ import annotations

from lab.records.memory import CATEGORY_TEXTS

LOSSES, LAST_LOSS = "the loop's list of losses", "the last loss"
"""What the training loop's own names are called."""


def category_text(name: str) -> str:
    """``optimizer_state`` -> optimizer state."""
    return CATEGORY_TEXTS[name]


def phase_text(phase: str) -> str:
    """A phase of a step."""
    return {"optimizer": "optimizer step", "zero_grad": "zero_grad", "recompute": "recomputation"}.get(phase, phase)


def module_text(module: str) -> str:
    """The path of a module, or what stands for none."""
    return {"optimizer": "the optimizer", "loss": "the loss", "": "no module"}.get(module, module)
