"""What moved, and what did not?

Fine-tuning is said in words ("freeze the backbone, train the head") and done by three things that do not know each other:
requires_grad decides what gets a gradient, the optimizer's list decides what a step may touch, and train or eval decides
whether BatchNorm's statistics follow the batches. A tensor moves in a step when the optimizer holds it and its .grad is not
None, whatever requires_grad says; momentum and decay move it even when that gradient is zero.

So the question is answered by looking: every tensor before against after, next to whether it is trainable and whether an
optimizer holds it. A bar where there should be none, or none where there should be one, is the finding. Loss and accuracy
often do not show it.
Source: the documentation of torch.optim (parameter groups, zero_grad), Hu and others 2021 (low-rank adaptation).
"""

from lab.experiments.fine_tuning.findings import explain
from lab.experiments.fine_tuning.lessons import lessons
from lab.experiments.fine_tuning.measure import run
from lab.experiments.fine_tuning.readings import agreement, headline
from lab.experiments.fine_tuning.schema import Params, Result, offered
from lab.experiments.fine_tuning.script import script

__all__ = ["Params", "Result", "agreement", "explain", "headline", "lessons", "offered", "run", "script"]
