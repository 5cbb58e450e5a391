"""What does 16 bit lose?

A floating-point format holds numbers between a smallest and a largest one: a window on the axis of exponents. Gradients of a
deep network spread over more than fifty powers of two, and fp16's window has forty. What lies below becomes zero, what lies
above becomes infinite. Multiplying the loss by a scale slides all gradients to the right; dividing them again before the
step costs nothing. bf16 has the window of fp32 and fewer digits: it needs no scale, and loses small updates instead.

Casting fp32 gradients afterwards understates the loss: in a real fp16 backward pass the gradients of activations underflow on
the way, and everything before them is zero. Both are measured here.

A scaler finds the scale: it doubles after so many good steps, halves when a gradient is not finite, and skips that step.
Source: Micikevicius and others 2018 (mixed precision training); the automatic mixed precision notes of PyTorch.
"""

from lab.experiments.mixed_precision.findings import explain
from lab.experiments.mixed_precision.lessons import lessons
from lab.experiments.mixed_precision.measure import run
from lab.experiments.mixed_precision.readings import agreement, headline
from lab.experiments.mixed_precision.schema import Params, Result, offered
from lab.experiments.mixed_precision.script import script

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
