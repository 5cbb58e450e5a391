"""Does it go on as if nothing had happened?

A training is more than its weights. BatchNorm's statistics, the optimizer's moments, the schedule's counter, the gradient
scaler, an average of the weights, the order of the samples, the generators of torch and Python, and the gradients of an
accumulation that is not finished all carry from one step to the next. A checkpoint that holds all of them, loaded into a
training that was built anew, goes on bit for bit: the gap between the two loss curves is exactly zero.

Leave one part out and the question is where that shows. Some parts show at the next step, some steps later, and some never
in the training loss: buffers and averages are read in evaluation alone. So neither the first loss after a resume nor the
whole training curve proves that everything was there.
Source: the PyTorch notes on serialization semantics, and the documentation of torch.load (weights_only).
"""

from lab.experiments.checkpoint_resume.findings import explain
from lab.experiments.checkpoint_resume.lessons import lessons
from lab.experiments.checkpoint_resume.measure import run
from lab.experiments.checkpoint_resume.readings import agreement, headline
from lab.experiments.checkpoint_resume.schema import Params, Result, offered
from lab.experiments.checkpoint_resume.script import script

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
