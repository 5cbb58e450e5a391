"""Who records, and what fails later?

In grad mode an operation on a tensor that requires gradients leaves a node behind. Under no_grad it leaves none. In
inference mode its result moreover has no version counter and can never take part in a recorded computation: outside
the mode it may be read, but not saved for backward and not written in place. enable_grad undoes no_grad, not inference mode.

Where a tensor was born decides what fails later, and torch's message does not say where that was. Here every operation of
a program is seen with the mode in force, and every line with the mode in which it ran.
Source: the autograd notes of PyTorch, "Locally disabling gradient computation"; RFC 17 on inference mode.
"""

from lab.experiments.gradient_modes.findings import explain
from lab.experiments.gradient_modes.lessons import lessons
from lab.experiments.gradient_modes.measure import run
from lab.experiments.gradient_modes.readings import agreement, headline
from lab.experiments.gradient_modes.schema import Params, Result, offered
from lab.experiments.gradient_modes.script import script

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
