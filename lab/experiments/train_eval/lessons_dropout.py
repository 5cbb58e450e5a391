"""Lessons on dropout: row M4."""

from __future__ import annotations

from lab.contract import Lesson
from lab.experiments.train_eval.readings import dropout, evidence
from lab.experiments.train_eval.schema import Params, Result


def _inside(result: Result) -> str:
    low, high = dropout(result).expected_interval
    inside = low <= dropout(result).dropped_fraction <= high
    return "near p, inside a binomial interval" if inside else "clearly away from p"


_SHARE = Lesson(
    row="M4",
    title="share dropped",
    params=Params(),
    question="Dropout(0.5) runs 200 times over 128 elements. What share of them is dropped?",
    choices={
        "near p, inside a binomial interval": "Every element is dropped on its own with probability 0.5; the count is binomial.",
        "exactly 0.5": "torch draws each element by itself. It does not pick a fixed number of them.",
        "clearly away from p": "25,600 draws leave a standard deviation of 0.0031.",
    },
    answer=_inside,
    evidence=evidence,
    evidence_name="share dropped",
    requirement="Say what p means in nn.Dropout and how exactly it is met. Assume train mode.",
    mechanism=(
        "p is the probability that an element is zeroed, not the share that is kept. In train mode a new Bernoulli mask is drawn "
        "for every call; what is kept is multiplied by 1/(1 − p). In eval mode the layer returns its input."
    ),
    proof=(
        "The measured share lies inside the 99.9% interval of a binomial with n = 25,600 and p = 0.5. A share outside it for many "
        "seeds would refute independent draws."
    ),
    recovery="If a network will not overfit one small batch, look at p first. Keep p small before a narrow layer.",
)

_KEPT_MEAN = Lesson(
    row="M4",
    title="the mean is kept",
    params=Params(study="convergence", p=0.8, passes=1000),
    question="Dropout(0.8) zeroes four of five values. The input is all ones. What is the mean of the output over many passes?",
    choices={
        "1: what is kept is multiplied by 5": "Kept values are scaled by 1/(1 − 0.8) = 5, so the expectation stays.",
        "0.2: four fifths are gone": "That was the mean without scaling. Then eval mode would have to multiply by 0.2.",
        "0.5": "Nothing here halves.",
    },
    answer=lambda r: (
        "1: what is kept is multiplied by 5" if abs(evidence(r) - 1) < 0.1 else "0.2: four fifths are gone"
    ),
    evidence=evidence,
    evidence_name="mean of the outputs",
    requirement="Say why nothing is rescaled at prediction time. Assume inverted dropout, as torch has it.",
    mechanism="y = m·x/(1 − p) with m = 1 with probability 1 − p, so E[y] = x and Var[y] = x²·p/(1 − p).",
    proof="Over 1,000 passes the mean settles at 1 inside its band, the variance at p/(1 − p) = 4. A mean of 0.2 would refute it.",
    recovery="Code ported from the original paper, which scales at test time, must not scale again.",
)

_ALL = Lesson(
    row="M4",
    title="p = 1",
    params=Params(p=1.0),
    question="1/(1 − p) has no value at p = 1. What does Dropout(1.0) return in train mode?",
    choices={
        "zeros": "torch treats p = 1 on its own: the output is x · 0.",
        "NaN": "0 · ∞ would be NaN, so torch does not compute it.",
        "an error": "p may lie in [0, 1], both ends included.",
    },
    answer=lambda r: "zeros" if dropout(r).mean == 0 and dropout(r).dropped_fraction == 1 else "NaN",
    evidence=evidence,
    evidence_name="share dropped",
    requirement="Say what the ends of the range of p do. Assume train mode.",
    mechanism="p = 0 returns the input, p = 1 multiplies by zero. Both are legal, and p = 1 stops every gradient.",
    proof="All 128 outputs are 0 and none is NaN.",
    recovery="A network that learns nothing and has p = 1 was meant to have a keep probability of 1: torch wants the dropped share.",
)

_FUNCTIONAL = Lesson(
    row="M4",
    title="functional dropout",
    params=Params(module="F.dropout"),
    question="forward calls F.dropout(x, 0.5). What happens after model.eval()?",
    choices={
        "it goes on dropping": "The function has no module and no mode; its training argument is True unless it is given.",
        "it returns x": "That is what nn.Dropout does. A function does not see self.training.",
        "it raises an error": "Nothing warns. The output is just noisy.",
    },
    answer=lambda r: "it goes on dropping" if dropout(r).eval_dropped_fraction > 0 else "it returns x",
    evidence=evidence,
    evidence_name="share dropped after eval()",
    requirement="Say which dropout listens to eval(). Assume that forward was written by somebody else.",
    mechanism="eval() sets a flag on modules. nn.Dropout passes the flag on; F.dropout takes training=True as its default.",
    proof="After eval() about half of the values are 0. With training=self.training none is.",
    recovery="Use nn.Dropout, or pass training=self.training. The scan view finds such calls in a whole model.",
)

_SAME_SEED = Lesson(
    row="M4",
    title="same seed, same mask",
    params=Params(same_mask=True, passes=50),
    question="torch.manual_seed(0) runs before each of 50 passes. How many different masks are there?",
    choices={
        "one": "The mask comes from the generator; the same state gives the same mask.",
        "50": "Only if the generator moves on between the passes.",
        "none: dropout is off": "The seed says which mask, not whether there is one.",
    },
    answer=lambda r: "one" if dropout(r).same_masks else "50",
    evidence=evidence,
    evidence_name="masks are equal",
    requirement="Say where the mask comes from and when it repeats. Assume one device.",
    mechanism="Each call draws from the device's default generator. Checkpointing saves and restores its state to get the same mask.",
    proof="The first and the second pass dropped the same elements. Without the seed in the loop they differ.",
    recovery="Seed once. If averages over passes do not settle, look for a manual_seed inside the loop.",
)

_ALPHA = Lesson(
    row="M4",
    title="alpha dropout keeps the variance",
    params=Params(study="convergence", module="AlphaDropout", inputs="normal", passes=1000, channels=32),
    question="AlphaDropout(0.5) on standard normal inputs. What is the variance of the output?",
    choices={
        "1: kept": "Dropped units become −1.758 instead of 0; scale and shift restore mean 0 and variance 1.",
        "2: as after Dropout": "Dropout(0.5) gives E[x²]/(1 − p) = 2 here.",
        "0.5": "Half of the units carry no signal, but they are not 0.",
    },
    answer=lambda r: "1: kept" if abs(evidence(r) - 1) < 0.25 else "2: as after Dropout",
    evidence=evidence,
    evidence_name="variance of the outputs",
    requirement="Say what AlphaDropout is for. Assume SELU activations.",
    mechanism=(
        "Self-normalising networks rely on mean 0 and variance 1 in every layer. Ordinary dropout changes the variance; AlphaDropout "
        "drops to −λα and applies an affine map that keeps both."
    ),
    proof="The variance settles at the closed form for this input, near 1. Switch the module to Dropout and it settles near 2.",
    recovery="Use it with SELU only. With ReLU use Dropout.",
)

_PLANES = Lesson(
    row="M4",
    title="whole planes dropped",
    params=Params(module="Dropout2d", batch=4),
    question="Dropout2d(0.5) on images. What is dropped together?",
    choices={
        "whole channels of a sample": "One draw decides over H × W positions: a plane is kept or gone.",
        "single pixels": "That is Dropout. A neighbouring pixel would give most of the value away.",
        "whole samples": "Each sample and channel has its own draw.",
    },
    answer=lambda r: (
        "whole channels of a sample"
        if dropout(r).unit == "plane" and dropout(r).partly_dropped == 0
        else "single pixels"
    ),
    evidence=evidence,
    evidence_name="share of planes dropped",
    requirement="Say what the number in Dropout1d, 2d, 3d stands for. Assume inputs with a batch dimension.",
    mechanism="The mask has shape (N, C, 1, 1) and is broadcast. Adjacent pixels of a feature map are correlated, so single ones carry little.",
    proof="Over 200 passes no plane was dropped in part, and the share of planes agrees with p.",
    recovery="A 3-d input to Dropout2d is read as (N, C, L) with a warning: use Dropout1d, or add the batch dimension.",
)

_MC = Lesson(
    row="M4",
    title="MC dropout",
    params=Params(study="MC dropout", p=0.2, passes=100),
    question="To get the spread of MC dropout, which modules go into train mode?",
    choices={
        "the dropout layers only": "model.eval() first, then train() on them: BatchNorm must not see the test batch.",
        "the whole model": "Then BatchNorm normalises with the test batch and stores it.",
        "none: eval() has a spread already": "Dropout returns its input in eval mode, so every pass is the same.",
    },
    answer=lambda r: (
        "the dropout layers only" if r.mc_dropout and r.mc_dropout.batchnorm_batches == 0 else "the whole model"
    ),
    evidence=evidence,
    evidence_name="std over passes, mean over inputs",
    requirement="Say how to read an uncertainty off a network with dropout. Assume it was trained with dropout.",
    mechanism="Dropout stays on at prediction; the passes are samples of an ensemble. Mean and spread come from T passes and cost T passes.",
    proof="The spread agrees with Σ w²h²·p/(1 − p), and BatchNorm counted 0 batches.",
    recovery="Run the passes as one large batch. Do not read the spread as a calibrated error without checking it on held-out data.",
)

DROPOUT = (_SHARE, _KEPT_MEAN, _ALL, _FUNCTIONAL, _SAME_SEED, _ALPHA, _PLANES, _MC)
