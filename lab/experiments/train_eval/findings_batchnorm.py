"""What to notice in the batchnorm view."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.train_eval import readings
from lab.experiments.train_eval.schema import Result
from lab.quantities import number_text


def batches(result: Result) -> Iterator[Finding]:
    assert result.batchnorm
    rows = result.batchnorm
    last = rows[-1]
    biased, unbiased = last.batch_var_biased[0], last.batch_var_unbiased[0]
    yield Finding(
        level="surprise",
        title="The biased variance normalises, the unbiased one is stored",
        text=f"n = {last.values} values in channel 0. Train mode divides by n: {number_text(biased)}. What goes into the running variance is "
        f"divided by n − 1: {number_text(unbiased)}, n/(n − 1) times as much.",
        evidence={"biased": biased, "unbiased": unbiased, "ratio": unbiased / biased if biased else math.nan},
    )
    if last.running_mean is None:
        yield Finding(
            level="warning",
            title="No running statistics: both modes use the batch",
            text="With track_running_stats=False eval mode normalises with the batch as well, so a sample's output depends on its company.",
            evidence={"gap of the modes": last.mode_gap},
            repair="track_running_stats=True",
            change={"track_running_stats": True},
        )
        return
    momentum = result.chosen.momentum
    start = _weight_of_start(momentum, len(rows))
    if start > 0.01:
        yield Finding(
            level="warning",
            title="Too few batches: the running statistics still remember their start",
            text=f"They start at mean 0 and variance 1, and this start still weighs {start:.1%} after {len(rows)} batches. The gap between "
            f"the modes on data that the layer has not seen is {number_text(last.fresh_gap)}.",
            evidence={
                "weight of the start": start,
                "gap on fresh data": last.fresh_gap,
                "running mean": last.running_mean[0],
            },
            repair="Train longer, raise momentum, or recompute the statistics with momentum=None.",
            change={"momentum": None},
        )
    words = (
        "the mean of all batches (momentum=None)"
        if momentum is None
        else f"new = {1 - momentum:g} · old + {momentum:g} · batch"
    )
    yield Finding(
        level="fact",
        title="momentum is the weight of the new batch",
        text=f"{words}. Most other libraries mean the opposite: the weight of the old value.",
        evidence={"weight of the last batch": last.weight_of_batch, "running mean": last.running_mean[0]},
    )  # fmt: skip
    yield Finding(
        level="fact",
        title="Output and gradient are the formula",
        text=f"(x − μ)/√(σ² + ε) in float64 differs from the module's output by at most {number_text(last.formula_error)}. The gradient "
        "subtracts two means, because μ and σ depend on every input of the channel.",
        evidence={"output, largest distance": last.formula_error, "gradient, relative": last.gradient_error},
    )


def _weight_of_start(momentum: float | None, batches: int) -> float:
    """What is left of the initial statistics: (1 − m)^k; nothing for the cumulative average."""
    return 0.0 if momentum is None else (1 - momentum) ** batches


def batch_sizes(result: Result) -> Iterator[Finding]:
    rows = [row for row in result.sizes or () if row.ratio is not None and row.predicted is not None]
    chosen = next((row for row in rows if row.batch == result.chosen.batch), rows[0])  # torch refuses some
    assert chosen.ratio is not None
    assert chosen.predicted is not None
    yield Finding(
        level="surprise",
        title=f"With n = {chosen.values} eval output is {1 - chosen.ratio:.2%} smaller than train output",
        text="Even when the layer has stored exactly this batch (momentum 1) both modes differ: train mode divides by the biased "
        f"variance, eval mode by the stored unbiased one. √((σ_b² + ε)/(σ_u² + ε)) = {chosen.predicted:.6f}.",
        evidence={"measured": chosen.ratio, "predicted": chosen.predicted, "limit": chosen.limit},
    )
    worst = max(row.worst_error or 0.0 for row in rows)
    yield Finding(
        level="fact",
        title="Measurement and formula agree for every batch size",
        text=f"Largest distance over {len(rows)} sizes and all channels: {number_text(worst)}.",
        evidence={"largest distance": worst},
    )
    refused = next((row for row in result.sizes or () if row.error), None)
    if refused:
        yield Finding(
            level="warning",
            title="A batch with one value a channel is refused",
            text=f"torch says: {refused.error}. One value has no variance.",
            evidence={"values of a channel": refused.values},
            repair="drop_last=True in the DataLoader; eval() for prediction; GroupNorm or LayerNorm for tiny batches.",
        )


def serving(result: Result) -> Iterator[Finding]:
    rows = result.serving or ()
    here = next(row for row in rows if row.shift == result.chosen.shift)
    still = next(row for row in rows if row.shift == 0)
    yield Finding(
        level="warning" if here.gap > 2 * still.gap else "fact",
        title=f"Eval output is {number_text(here.gap)} away from what train mode would give",
        text=f"The data became {here.scale:g} · x + {here.shift:g} after training. Eval mode goes on subtracting the stored mean: its output has "
        f"mean {number_text(here.eval_mean)} and std {number_text(here.eval_std)}. Without a shift the gap is {number_text(still.gap)}.",
        evidence={"gap": here.gap, "from means and variances": here.predicted, "gap without shift": still.gap},
        repair="Recompute the statistics on serving data: reset_running_stats(), momentum=None, one pass in train mode.",
    )
    yield Finding(
        level="surprise",
        title="Train mode would hide the shift",
        text="It normalises every batch to mean 0 and variance 1, so a model in train mode looks right on shifted data, and depends on "
        "which samples share a batch.",
        evidence={"gap": here.gap, "mean of eval output": here.eval_mean},
    )


def other_norms(result: Result) -> Iterator[Finding]:
    rows = result.norms or ()
    batch, stored = (next(r for r in rows if (r.layer, r.mode) == ("BatchNorm2d", mode)) for mode in ("train", "eval"))
    alone = [r.layer for r in rows if r.mode == "train" and r.samples == 1]
    yield Finding(
        level="fact",
        title="Only BatchNorm looks at other samples",
        text=f"In train mode one output of BatchNorm2d depends on {batch.values} values of {batch.samples} samples, all in its own channel. "
        f"{', '.join(alone)} stay inside the sample. Read from the gradient, not from the documentation.",
        evidence={f"{r.layer}, values": r.values for r in rows if r.mode == "train"},
    )
    yield Finding(
        level="surprise",
        title="In eval mode BatchNorm is a fixed scale and shift",
        text=f"Its output then depends on {stored.values} value: the element itself. The other layers compute the same in both modes.",
        evidence={"values in train mode": batch.values, "values in eval mode": stored.values},
    )
    rms_norm = next(r for r in rows if r.layer == "RMSNorm")
    yield Finding(
        level="fact",
        title="RMSNorm does not subtract the mean",
        text=f"It divides by the root mean square only: over its own values the output has mean {number_text(rms_norm.mean)}, where LayerNorm has 0.",
        evidence={"mean of RMSNorm": rms_norm.mean},
    )
    yield from norm_defaults(result)


def norm_defaults(result: Result) -> Iterator[Finding]:
    rows = {row.name: row for row in result.listeners or ()}
    plain, tracked = rows["nn.InstanceNorm1d"], rows["nn.InstanceNorm1d(track_running_stats=True)"]
    yield Finding(
        level="surprise",
        title="InstanceNorm does not change under eval(), BatchNorm does",
        text="BatchNorm tracks running statistics unless told not to; InstanceNorm does not unless told to. The gap between the modes is "
        f"{number_text(plain.mode_gap)} for the default InstanceNorm and {number_text(tracked.mode_gap)} when it tracks.",
        evidence={"default": plain.mode_gap, "track_running_stats=True": tracked.mode_gap},
    )
    untracked = rows["nn.BatchNorm1d(track_running_stats=False)"]
    yield Finding(
        level="warning",
        title="BatchNorm without running statistics needs the batch in eval mode too",
        text="Its output for one sample depends on the others in the batch, whatever the mode; with a batch of one it raises an error that "
        "talks about training.",
        evidence={"gap of the modes": untracked.mode_gap, "needs the batch": str(untracked.needs_the_batch)},
        repair="Keep track_running_stats=True, or use GroupNorm or LayerNorm.",
    )


def freezing(result: Result) -> Iterator[Finding]:
    rows, row = {r.name: r for r in result.treatments or ()}, readings.treatment(result)
    surprising = row.batches_counted != 1 or row.name not in ("train mode",)
    yield Finding(
        level="surprise" if surprising else "fact",
        title=f"{row.name}: {row.batches_counted} batch{'es' * (row.batches_counted != 1)} counted, running mean moved by {number_text(row.mean_moved)}",
        text=row.meaning + (f" torch says: {row.error}" if row.error else ""),
        evidence={"batches counted": row.batches_counted, "running mean moved": row.mean_moved, "weight gets a gradient": str(row.weight_gradient)},
        repair="" if row.name in ("train mode", "frozen properly") else "To freeze: requires_grad_(False), eval(), and keep eval() when model.train() is called.",
        change={} if row.name == "frozen properly" else {"treatment": "frozen properly"},
    )  # fmt: skip
    kept = rows["empty state dict"]
    yield Finding(
        level="fact",
        title="Three things can move, by three causes",
        text="The affine weight by its gradient, the running statistics by a forward in train mode, the output by either. "
        f"requires_grad=False moved the running mean by {number_text(rows['requires_grad=False'].mean_moved)}, eval() by "
        f"{number_text(rows['eval()'].mean_moved)}.",
        evidence={"two micro-batches, output differs": rows["two micro-batches"].output_gap, "empty state dict, counter changed": kept.batches_counted},
    )  # fmt: skip
    again = result.recomputed
    assert again
    yield Finding(
        level="fact",
        title="Statistics can be recomputed without training",
        text="reset_running_stats(), momentum=None and one pass in train mode give the mean of the batches. Channel 0: momentum 0.1 had left "
        f"{number_text(again.before[0])}, recomputed {number_text(again.running_mean[0])}, mean of all data {number_text(again.data_mean[0])}.",
        evidence={
            "before": again.before[0],
            "recomputed": again.running_mean[0],
            "mean of the data": again.data_mean[0],
        },
    )
