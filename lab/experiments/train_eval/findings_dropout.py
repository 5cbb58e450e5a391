"""What to notice in the dropout view."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.train_eval import readings
from lab.experiments.train_eval.findings_batchnorm import norm_defaults
from lab.experiments.train_eval.schema import Result
from lab.quantities import number_text, seconds_text


def masks(result: Result) -> Iterator[Finding]:
    r, chosen = readings.dropout(result), result.chosen
    low, high = r.expected_interval
    inside = low <= r.dropped_fraction <= high
    trials = r.units * r.independent_passes
    yield Finding(
        level="fact" if inside else "warning",
        title=f"The share of dropped {r.unit}s agrees with p"
        if inside
        else f"The share of dropped {r.unit}s is outside its interval",
        text=f"{trials:,} independent {r.unit}s, each dropped with probability {chosen.p:g}: {r.level:.1%} of seeds give a share "
        f"between {low:.4f} and {high:.4f}. Measured: {r.dropped_fraction:.4f}.",
        evidence={"dropped": r.dropped_fraction, "low": low, "high": high},
        repair="" if inside else "One seed in a thousand does this. Try another seed.",
    )
    if 0 < chosen.p < 1 and not r.kept_shift:
        yield Finding(
            level="fact",
            title=f"What is kept is multiplied by 1/(1 − p) = {number_text(r.kept_scale)}",
            text="So the expected output equals the input, and eval mode has nothing to rescale. The mean is kept, the variance is not: "
            f"it goes from the input's own to {number_text(r.variance)}.",
            evidence={
                "mean": r.mean,
                "predicted mean": r.predicted.mean,
                "variance": r.variance,
                "predicted variance": r.predicted.variance,
            },
        )
    if r.kept_shift:
        yield Finding(
            level="fact",
            title="AlphaDropout keeps mean and variance",
            text=f"A dropped unit is set to −λα = −1.758, then everything is multiplied by {number_text(r.kept_scale)} and "
            f"{number_text(r.kept_shift)} is added. For inputs of mean 0 and variance 1 both stay.",
            evidence={
                "mean": r.mean,
                "predicted mean": r.predicted.mean,
                "variance": r.variance,
                "predicted variance": r.predicted.variance,
            },
        )
    yield from _extremes(result)
    yield from _ignores_eval(result)
    yield from _whole_units(result)
    if r.same_masks and 0 < chosen.p < 1:
        yield Finding(
            level="surprise",
            title="Both passes dropped the same units",
            text="The generator was set back to the seed before each pass, so each pass drew the same mask. More passes bring no new "
            f"information: {r.independent_passes} independent pass.",
            evidence={"passes": len(r.convergence), "independent passes": r.independent_passes},
            repair="Seed once, before the first pass.",
            change={"same_mask": False},
        )


def _extremes(result: Result) -> Iterator[Finding]:
    r, p = readings.dropout(result), result.chosen.p
    if p == 1:
        yield Finding(
            level="surprise",
            title="p = 1 gives zeros, not a division by zero",
            text="1/(1 − p) has no value at p = 1. torch returns x · 0: every output is 0, and so is every gradient that goes back "
            "through it.",
            evidence={"dropped": r.dropped_fraction, "mean": r.mean},
            repair="p is the share that is dropped, not the share that is kept.",
            change={"p": 0.5},
        )
    if p == 0:
        yield Finding(
            level="fact",
            title="p = 0 is the identity",
            text="Nothing is dropped, and the factor is 1.",
            evidence={"dropped": r.dropped_fraction},
        )


def _ignores_eval(result: Result) -> Iterator[Finding]:
    r = readings.dropout(result)
    if r.eval_dropped_fraction > 0 and result.chosen.p < 1:
        yield Finding(
            level="warning",
            title="F.dropout drops after eval() as well",
            text=f"The function does not know the module that calls it; its training argument is True unless it is given. After eval() "
            f"it dropped {r.eval_dropped_fraction:.1%} of the units.",
            evidence={"dropped after eval()": r.eval_dropped_fraction},
            repair="F.dropout(x, p, training=self.training), or nn.Dropout.",
            change={"module": "Dropout"},
        )


def _whole_units(result: Result) -> Iterator[Finding]:
    r = readings.dropout(result)
    if r.unit != "element":
        yield Finding(
            level="fact",
            title=f"A {r.unit} is dropped as a whole",
            text=f"{result.module} draws one number for each sample and channel. In {r.units:,} {r.unit}s a pass, {r.partly_dropped} "
            "were dropped in part. Neighbouring positions are alike, so dropping single ones would remove little.",
            evidence={"units in a pass": r.units, "dropped in part": r.partly_dropped},
        )


def mc_dropout(result: Result) -> Iterator[Finding]:
    mc = result.mc_dropout
    assert mc
    predicted = sum(s.predicted_std for s in mc.samples) / len(mc.samples)
    yield Finding(
        level="fact",
        title="The spread follows from p and the last layer",
        text="With one dropout layer before a linear output the variance is the sum of w²·h²·p/(1 − p). The measured spread comes "
        f"near it: {number_text(mc.mean_std)} over {mc.passes} passes, {number_text(predicted)} by the formula.",
        evidence={"measured std": mc.mean_std, "predicted std": predicted, "passes": mc.passes},
    )
    yield Finding(
        level="surprise",
        title=f"Each answer costs {mc.passes} forwards",
        text=f"{seconds_text(mc.all_passes_s)} instead of {seconds_text(mc.one_pass_s)}. The spread says how much the mask matters for this input, which is not the same as "
        "how wrong the prediction is: it does not shrink with more training data unless p is tuned.",
        evidence={"one_pass_s": mc.one_pass_s, "all_passes_s": mc.all_passes_s},
        repair="Put the passes into one batch: repeat the input, run once.",
    )
    yield Finding(
        level="fact",
        title="Only the dropout layer is in train mode",
        text=f"model.eval() first, then train() on the dropout layers alone. BatchNorm counted {mc.batchnorm_batches} batches.",
        evidence={"batches counted": mc.batchnorm_batches},
        repair="for m in model.modules(): m.train(isinstance(m, nn.Dropout))",
    )


def listeners(result: Result) -> Iterator[Finding]:
    rows = result.listeners or ()
    deaf = [row.name for row in rows if row.eval_spread > 0]
    if deaf:
        yield Finding(
            level="warning",
            title=f"{len(deaf)} of {len(rows)} stay random after eval()",
            text=f"{' and '.join(deaf)}: functions have no mode. What they drop is decided by an argument of the call.",
            evidence={row.name: row.eval_spread for row in rows if row.eval_spread > 0},
            repair="training=self.training; dropout_p=self.p if self.training else 0.0.",
        )
    yield from norm_defaults(result)
    warned = [row for row in rows if row.warning]
    for row in warned:
        yield Finding(
            level="surprise",
            title=f"{row.name} drops a {row.drops}, and warns",
            text=f"torch says: {row.warning}. It reads a 3-d input as a batch of sequences, not as one image.",
            evidence={"shape": str(row.shape), "dropped as a whole": row.drops},
            repair="Use Dropout1d for (N, C, L), or add the batch dimension.",
        )
