"""What changes between train and eval?

`model.train()` and `model.eval()` set one flag, `training`, on every module. Few layers read it. Dropout then drops
units and scales the others, y = m·x/(1 − p) with m = 0 with probability p, or does nothing. BatchNorm normalises with
the mean and the variance of the batch, y = (x − μ)/√(σ² + ε), and stores a running average of both, or normalises with
what it stored.

Recording gradients is another switch: `no_grad` and `inference_mode` decide whether a graph is kept, never what a layer
computes. Sources: Srivastava et al. 2014, Ioffe and Szegedy 2015, the documentation of `torch.nn`.

Every number here comes from the real modules, run in both modes on the same input.
"""

from lab.experiments.train_eval.findings import explain
from lab.experiments.train_eval.lessons import lessons
from lab.experiments.train_eval.measure import run
from lab.experiments.train_eval.readings import headline
from lab.experiments.train_eval.schema import Params, Result, offered
from lab.experiments.train_eval.script import script

__all__ = ["Params", "Result", "explain", "headline", "lessons", "offered", "run", "script"]
