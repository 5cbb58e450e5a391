"""What is said where there is no program."""

from __future__ import annotations

from lab.contract import Fault

NO_PROGRAM = Fault(
    "OwnModelError",
    "There is no program yet.",
    explanation="A program for this page defines model and batch, and where the default does not fit, loss(model, batch).",
    repair="Begin with the preset 'a model of your own' and change it.",
)
