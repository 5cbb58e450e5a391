"""Lessons on BatchNorm: row M5."""

from __future__ import annotations

from lab.contract import Lesson
from lab.experiments.train_eval.readings import evidence, treatment
from lab.experiments.train_eval.schema import Params, Result


def _counted(result: Result) -> int:
    return treatment(result).batches_counted


def _follows(result: Result) -> str:
    """Whether the running mean is nearer to the last batch's mean than to the mean of all."""
    assert result.batchnorm
    rows = result.batchnorm
    plain = sum(row.batch_mean[0] for row in rows) / len(rows)
    last = abs(evidence(result) - rows[-1].batch_mean[0])
    return "nearly the last batch" if last < abs(evidence(result) - plain) else "slow and smooth"


def _is_plain_mean(result: Result) -> str:
    assert result.batchnorm
    rows = result.batchnorm
    plain = sum(row.batch_mean[0] for row in rows) / len(rows)
    return "the plain mean of the batch means" if abs(evidence(result) - plain) < 1e-12 else "the last batch's mean"


_FREEZING = Params(view="batchnorm", study="freezing", module="BatchNorm1d")

_TWO_VARIANCES = Lesson(
    row="M5",
    title="biased and unbiased",
    params=Params(view="batchnorm", study="batch size", module="BatchNorm1d", batch=4),
    question="momentum=1: the layer has stored exactly the batch of 4 that it just saw. Do train and eval mode give the same output for it?",
    choices={
        "no: eval is smaller by √(3/4)": "Train mode divides by n, what is stored was divided by n − 1.",
        "yes: same batch, same statistics": "Same batch, but two variances: biased to normalise, unbiased to store.",
        "no: eval is larger": "The stored variance is the larger one, so eval output is the smaller one.",
    },
    answer=lambda r: (
        "no: eval is smaller by √(3/4)"
        if abs(evidence(r) - 0.75**0.5) < 1e-3
        else "yes: same batch, same statistics"
        if evidence(r) == 1
        else "no: eval is larger"
    ),
    evidence=evidence,
    evidence_name="eval output ÷ train output",
    requirement="Say which variance BatchNorm uses where. Assume the defaults of torch.",
    mechanism="Train mode normalises with Σ(x − μ)²/n and puts Σ(x − μ)²/(n − 1) into the running variance. Eval mode uses the latter.",
    proof="The ratio is √((σ_b² + ε)/(σ_u² + ε)) to 1e-15 for every batch size; without the two variances it would be 1.",
    recovery="The gap is √((n − 1)/n): 13% at n = 4, 0.2% at n = 256. It matters for tiny batches only; then use GroupNorm.",
)

_ONE = Lesson(
    row="M5",
    title="a batch of one",
    params=Params(view="batchnorm", study="batch by batch", module="BatchNorm1d", batch=1),
    question="BatchNorm1d in train mode gets a batch with one sample. What happens?",
    choices={
        "a ValueError": "One value per channel has no variance; torch refuses before it computes.",
        "the output is 0": "(x − x)/√(0 + ε) would be 0 for every input: no signal. torch does not let that pass.",
        "it uses the running statistics": "Only eval mode does.",
    },
    answer=lambda r: "a ValueError" if r.fault and r.fault.type == "ValueError" else "the output is 0",
    evidence=evidence,
    evidence_name="values of a channel",
    requirement='Explain "Expected more than 1 value per channel when training". Assume it comes up at the end of an epoch.',
    mechanism="n counts all values of a channel: N, or N·H·W for images. At n = 1 the variance is 0 and the unbiased one is 0/0.",
    proof="A batch of 2 runs, a batch of 1 raises. BatchNorm2d with one 4 × 4 image runs: n is 16.",
    recovery="drop_last=True for training, eval() for prediction, GroupNorm or LayerNorm where batches stay tiny.",
)

_MOMENTUM = Lesson(
    row="M5",
    title="momentum is the weight of the new batch",
    params=Params(view="batchnorm", study="batch by batch", module="BatchNorm1d", momentum=0.9, batches=10),
    question="momentum=0.9 in torch. After 10 batches, what does the running mean look like?",
    choices={
        "nearly the last batch": "running ← 0.1·running + 0.9·batch: the newest batch weighs 0.9.",
        "slow and smooth": "That would be momentum 0.1 in torch, or 0.9 elsewhere.",
        "the mean of all batches": "That is momentum=None.",
    },
    answer=_follows,
    evidence=evidence,
    evidence_name="running mean of channel 0",
    requirement="Say what momentum means in torch's BatchNorm. Assume a port from another library.",
    mechanism="running ← (1 − m)·running + m·new. Optimizers and most other libraries give the weight to the old value.",
    proof="The running mean follows the batch mean step by step. With 0.1 it lags some ten batches behind.",
    recovery="Port momentum 0.99 as 0.01. With few batches raise it, or use None.",
)

_CUMULATIVE = Lesson(
    row="M5",
    title="momentum=None",
    params=Params(view="batchnorm", study="batch by batch", module="BatchNorm1d", momentum=None, batches=20),
    question="momentum=None, 20 batches of equal size. What is the running mean?",
    choices={
        "the plain mean of the batch means": "The k-th batch weighs 1/k, which is the cumulative average.",
        "0: nothing is stored": "None does not switch storing off; momentum=0 does.",
        "the last batch's mean": "That is momentum=1.",
    },
    answer=_is_plain_mean,
    evidence=evidence,
    evidence_name="running mean of channel 0",
    requirement="Say what num_batches_tracked is for. Assume momentum=None.",
    mechanism="The factor is 1/num_batches_tracked, so all batches weigh the same and the start, 0 and 1, weighs nothing.",
    proof="The running mean equals the mean of all 20 batch means to 1e-12.",
    recovery="Use it to recompute statistics: reset_running_stats(), momentum=None, one pass in train mode.",
)

_UNTRACKED = Lesson(
    row="M5",
    title="no running statistics",
    params=Params(view="batchnorm", study="batch by batch", module="BatchNorm1d", track_running_stats=False),
    question="track_running_stats=False. How far apart are train and eval output on the same batch?",
    choices={
        "not at all: both use the batch": "Nothing is stored, so eval mode has nothing else to use.",
        "as far as usual": "There is no running mean to differ from.",
        "eval mode raises an error": "Only for one value a channel; then its message talks about training.",
    },
    answer=lambda r: "not at all: both use the batch" if evidence(r) == 0 else "as far as usual",
    evidence=evidence,
    evidence_name="rms distance of both modes",
    requirement="Say what track_running_stats=False does at prediction. Assume batches of any size.",
    mechanism="running_mean and running_var are None; the layer normalises with the batch in both modes.",
    proof="The distance is 0, and a sample's output changes with its company.",
    recovery="Do not serve such a layer with batches of one. InstanceNorm has this as its default and stays inside a sample.",
)

_SHIFTED = Lesson(
    row="M5",
    title="serving data has moved",
    params=Params(view="batchnorm", study="serving", module="BatchNorm1d", shift=2.0, batches=100),
    question="After training every input is larger by 2. Which mode shows it?",
    choices={
        "eval: its output has another mean": "Eval mode subtracts the stored mean, so the shift arrives at the next layer.",
        "train: it uses the batch": "Train mode subtracts the batch's own mean: it hides the shift.",
        "neither": "Eval mode has a memory of training, and the data disagree with it.",
    },
    answer=lambda r: "eval: its output has another mean" if evidence(r) > 0.2 else "neither",
    evidence=evidence,
    evidence_name="rms distance of both modes",
    requirement="Say what BatchNorm does under a distribution shift. Assume eval mode in production.",
    mechanism="Eval mode is a fixed scale and shift. A change of the data's mean or variance goes straight through.",
    proof="The gap follows from means and variances alone, to 1e-12, and grows linearly with the shift.",
    recovery="Recompute the statistics on serving data, or monitor the mean of a BatchNorm's input.",
)


def _frozen(
    title: str, name: str, question: str, choices: dict[str, str], right: str, wrong: str, expected: int, **texts: str
) -> Lesson:
    """A lesson that counts the batches which one treatment stored."""
    return Lesson(
        row="M5",
        title=title,
        params=Params(**{**vars(_FREEZING), "treatment": name}),
        question=question,
        choices=choices,
        answer=lambda r: right if _counted(r) == expected else wrong,
        evidence=evidence,
        evidence_name="batches counted",
        **texts,
    )


_STILL_MOVES = _frozen(
    "frozen BatchNorm still moves",
    "requires_grad=False",
    "All parameters of a BatchNorm layer have requires_grad=False. The model trains on. Do its running statistics change?",
    {
        "yes": "They are buffers. A forward in train mode moves them; no gradient is involved.",
        "no: it is frozen": "requires_grad=False freezes weight and bias only.",
        "only the variance": "Mean and variance are stored together.",
    },
    "yes",
    "no: it is frozen",
    1,
    requirement="Say how to freeze BatchNorm while fine-tuning. Assume a pretrained backbone.",
    mechanism="Three things move by three causes: weight and bias by gradients, statistics by a forward in train mode, the output by either.",
    proof="One forward counts one batch and moves the running mean. In eval mode it counts none.",
    recovery="requires_grad_(False), eval(), and override train() so that model.train() does not switch it back.",
)

_EXTRA = _frozen(
    "an extra forward moves them",
    "extra forward, no_grad",
    "To log something, a second forward runs in train mode under no_grad. Does BatchNorm store that batch?",
    {
        "yes": "no_grad stops recording for autograd. Storing is part of the forward in train mode.",
        "no: no_grad protects it": "no_grad knows nothing of buffers.",
        "only the counter": "Counter, mean and variance move together.",
    },
    "yes",
    "no: no_grad protects it",
    1,
    requirement="Say what no_grad does not protect. Assume train mode.",
    mechanism="Running statistics are updated in place by the forward when training is True, whatever the gradient mode.",
    proof="One batch counted, running mean moved, no gradient anywhere.",
    recovery="eval() around forwards that are not training: metrics, warm-up calls, shape probes.",
)

_TWICE = _frozen(
    "checkpointing stores twice",
    "checkpoint",
    "A checkpointed block holds BatchNorm. How many batches does one step count?",
    {
        "2": "The forward runs again in backward, and stores again.",
        "1": "Recomputing is a real forward in train mode.",
        "0": "Both runs are in train mode.",
    },
    "2",
    "1",
    2,
    requirement="Say what checkpointing does to BatchNorm. Assume non-reentrant checkpointing.",
    mechanism="Activations are dropped and recomputed in backward by running the block again, side effects included.",
    proof="num_batches_tracked grows by 2 for one step; the effective momentum becomes 1 − (1 − m)².",
    recovery="Use √-adjusted momentum 1 − √(1 − m), keep BatchNorm outside of checkpointed blocks, or freeze it.",
)

BATCHNORM = (
    *(_TWO_VARIANCES, _ONE, _MOMENTUM, _CUMULATIVE, _UNTRACKED, _SHIFTED),
    *(_STILL_MOVES, _EXTRA, _TWICE),
)
