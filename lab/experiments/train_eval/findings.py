"""What to notice, computed from the numbers of the study."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from lab.contract import Finding
from lab.experiments.train_eval import readings
from lab.experiments.train_eval.schema import Result
from lab.quantities import bytes_text, number_text, seconds_text

MOST = 4


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST`` findings, warnings first."""
    order = {"fault": 0, "warning": 1, "surprise": 2, "fact": 3}
    look = (_sizes if result.sizes else _nothing) if result.fault else _LOOKS[result.study]
    found = list(look(result))
    return tuple(sorted(found, key=lambda finding: order[finding.level])[:MOST])


def _nothing(result: Result) -> Iterator[Finding]:
    """The card of the fault says it all."""
    return iter(())


def _masks(result: Result) -> Iterator[Finding]:
    r, chosen = readings.dropout(result), result.chosen or {}
    low, high = r.expected_interval
    inside = low <= r.dropped_fraction <= high
    trials = r.units * r.independent_passes
    yield Finding(
        "fact" if inside else "warning",
        f"The share of dropped {r.unit}s agrees with p"
        if inside
        else f"The share of dropped {r.unit}s is outside its interval",
        f"{trials:,} independent {r.unit}s, each dropped with probability {chosen['p']:g}: {r.level:.1%} of seeds give a share "
        f"between {low:.4f} and {high:.4f}. Measured: {r.dropped_fraction:.4f}.",
        {"dropped": r.dropped_fraction, "low": low, "high": high},
        repair="" if inside else "One seed in a thousand does this. Try another seed.",
    )
    if 0 < chosen["p"] < 1 and not r.kept_shift:
        yield Finding(
            "fact",
            f"What is kept is multiplied by 1/(1 − p) = {number_text(r.kept_scale)}",
            "So the expected output equals the input, and eval mode has nothing to rescale. The mean is kept, the variance is not: "
            f"it goes from the input's own to {number_text(r.variance)}.",
            {
                "mean": r.mean,
                "predicted mean": r.predicted.mean,
                "variance": r.variance,
                "predicted variance": r.predicted.variance,
            },
        )
    if r.kept_shift:
        yield Finding(
            "fact",
            "AlphaDropout keeps mean and variance",
            f"A dropped unit is set to −λα = −1.758, then everything is multiplied by {number_text(r.kept_scale)} and "
            f"{number_text(r.kept_shift)} is added. For inputs of mean 0 and variance 1 both stay.",
            {
                "mean": r.mean,
                "predicted mean": r.predicted.mean,
                "variance": r.variance,
                "predicted variance": r.predicted.variance,
            },
        )
    yield from _extremes(result)
    yield from _ignores_eval(result)
    yield from _whole_units(result)
    if r.same_masks and 0 < chosen["p"] < 1:
        yield Finding(
            "surprise",
            "Both passes dropped the same units",
            "The generator was set back to the seed before each pass, so each pass drew the same mask. More passes bring no new "
            f"information: {r.independent_passes} independent pass.",
            {"passes": len(r.convergence), "independent passes": r.independent_passes},
            repair="Seed once, before the first pass.",
            change={"same_mask": False},
        )


def _extremes(result: Result) -> Iterator[Finding]:
    r, p = readings.dropout(result), (result.chosen or {})["p"]
    if p == 1:
        yield Finding(
            "surprise",
            "p = 1 gives zeros, not a division by zero",
            "1/(1 − p) has no value at p = 1. torch returns x · 0: every output is 0, and so is every gradient that goes back "
            "through it.",
            {"dropped": r.dropped_fraction, "mean": r.mean},
            repair="p is the share that is dropped, not the share that is kept.",
            change={"p": 0.5},
        )
    if p == 0:
        yield Finding(
            "fact", "p = 0 is the identity", "Nothing is dropped, and the factor is 1.", {"dropped": r.dropped_fraction}
        )


def _ignores_eval(result: Result) -> Iterator[Finding]:
    r = readings.dropout(result)
    if r.eval_dropped_fraction > 0 and (result.chosen or {})["p"] < 1:
        yield Finding(
            "warning",
            "F.dropout drops after eval() as well",
            f"The function does not know the module that calls it; its training argument is True unless it is given. After eval() "
            f"it dropped {r.eval_dropped_fraction:.1%} of the units.",
            {"dropped after eval()": r.eval_dropped_fraction},
            repair="F.dropout(x, p, training=self.training), or nn.Dropout.",
            change={"module": "Dropout"},
        )


def _whole_units(result: Result) -> Iterator[Finding]:
    r = readings.dropout(result)
    if r.unit != "element":
        yield Finding(
            "fact",
            f"A {r.unit} is dropped as a whole",
            f"{result.module} draws one number for each sample and channel. In {r.units:,} {r.unit}s a pass, {r.partly_dropped} "
            "were dropped in part. Neighbouring positions are alike, so dropping single ones would remove little.",
            {"units in a pass": r.units, "dropped in part": r.partly_dropped},
        )


def _mc(result: Result) -> Iterator[Finding]:
    mc = result.mc_dropout
    assert mc
    predicted = sum(s.predicted_std for s in mc.samples) / len(mc.samples)
    yield Finding(
        "fact",
        "The spread follows from p and the last layer",
        "With one dropout layer before a linear output the variance is the sum of w²·h²·p/(1 − p). The measured spread comes "
        f"near it: {number_text(mc.mean_std)} over {mc.passes} passes, {number_text(predicted)} by the formula.",
        {"measured std": mc.mean_std, "predicted std": predicted, "passes": mc.passes},
    )
    yield Finding(
        "surprise",
        f"Each answer costs {mc.passes} forwards",
        f"{seconds_text(mc.all_passes_s)} instead of {seconds_text(mc.one_pass_s)}. The spread says how much the mask matters for this input, which is not the same as "
        "how wrong the prediction is: it does not shrink with more training data unless p is tuned.",
        {"one_pass_s": mc.one_pass_s, "all_passes_s": mc.all_passes_s},
        repair="Put the passes into one batch: repeat the input, run once.",
    )
    yield Finding(
        "fact",
        "Only the dropout layer is in train mode",
        f"model.eval() first, then train() on the dropout layers alone. BatchNorm counted {mc.batchnorm_batches} batches.",
        {"batches counted": mc.batchnorm_batches},
        repair="for m in model.modules(): m.train(isinstance(m, nn.Dropout))",
    )


def _listeners(result: Result) -> Iterator[Finding]:
    rows = result.listeners or ()
    deaf = [row.name for row in rows if row.eval_spread > 0]
    if deaf:
        yield Finding(
            "warning",
            f"{len(deaf)} of {len(rows)} stay random after eval()",
            f"{' and '.join(deaf)}: functions have no mode. What they drop is decided by an argument of the call.",
            {row.name: row.eval_spread for row in rows if row.eval_spread > 0},
            repair="training=self.training; dropout_p=self.p if self.training else 0.0.",
        )
    yield from _norm_defaults(result)
    warned = [row for row in rows if row.warning]
    for row in warned:
        yield Finding(
            "surprise",
            f"{row.name} drops a {row.drops}, and warns",
            f"torch says: {row.warning}. It reads a 3-d input as a batch of sequences, not as one image.",
            {"shape": str(row.shape), "dropped as a whole": row.drops},
            repair="Use Dropout1d for (N, C, L), or add the batch dimension.",
        )


def _norm_defaults(result: Result) -> Iterator[Finding]:
    rows = {row.name: row for row in result.listeners or ()}
    plain, tracked = rows["nn.InstanceNorm1d"], rows["nn.InstanceNorm1d(track_running_stats=True)"]
    yield Finding(
        "surprise",
        "InstanceNorm does not change under eval(), BatchNorm does",
        "BatchNorm tracks running statistics unless told not to; InstanceNorm does not unless told to. The gap between the modes is "
        f"{number_text(plain.mode_gap)} for the default InstanceNorm and {number_text(tracked.mode_gap)} when it tracks.",
        {"default": plain.mode_gap, "track_running_stats=True": tracked.mode_gap},
    )
    untracked = rows["nn.BatchNorm1d(track_running_stats=False)"]
    yield Finding(
        "warning",
        "BatchNorm without running statistics needs the batch in eval mode too",
        "Its output for one sample depends on the others in the batch, whatever the mode; with a batch of one it raises an error that "
        "talks about training.",
        {"gap of the modes": untracked.mode_gap, "needs the batch": str(untracked.needs_the_batch)},
        repair="Keep track_running_stats=True, or use GroupNorm or LayerNorm.",
    )


def _trace(result: Result) -> Iterator[Finding]:
    assert result.batchnorm
    rows = result.batchnorm
    last = rows[-1]
    biased, unbiased = last.batch_var_biased[0], last.batch_var_unbiased[0]
    yield Finding(
        "surprise",
        "The biased variance normalises, the unbiased one is stored",
        f"n = {last.values} values in channel 0. Train mode divides by n: {number_text(biased)}. What goes into the running variance is "
        f"divided by n − 1: {number_text(unbiased)}, n/(n − 1) times as much.",
        {"biased": biased, "unbiased": unbiased, "ratio": unbiased / biased if biased else math.nan},
    )
    if last.running_mean is None:
        yield Finding(
            "warning",
            "No running statistics: both modes use the batch",
            "With track_running_stats=False eval mode normalises with the batch as well, so a sample's output depends on its company.",
            {"gap of the modes": last.mode_gap},
            repair="track_running_stats=True",
            change={"track_running_stats": True},
        )
        return
    momentum = (result.chosen or {})["momentum"]
    start = _weight_of_start(momentum, len(rows))
    if start > 0.01:
        yield Finding(
            "warning",
            "Too few batches: the running statistics still remember their start",
            f"They start at mean 0 and variance 1, and this start still weighs {start:.1%} after {len(rows)} batches. The gap between "
            f"the modes on data that the layer has not seen is {number_text(last.fresh_gap)}.",
            {"weight of the start": start, "gap on fresh data": last.fresh_gap, "running mean": last.running_mean[0]},
            repair="Train longer, raise momentum, or recompute the statistics with momentum=None.",
            change={"momentum": None},
        )
    words = (
        "the mean of all batches (momentum=None)"
        if momentum is None
        else f"new = {1 - momentum:g} · old + {momentum:g} · batch"
    )
    yield Finding(
        "fact",
        "momentum is the weight of the new batch",
        f"{words}. Most other libraries mean the opposite: the weight of the old value.",
        {"weight of the last batch": last.weight_of_batch, "running mean": last.running_mean[0]},
    )  # fmt: skip
    yield Finding(
        "fact",
        "Output and gradient are the formula",
        f"(x − μ)/√(σ² + ε) in float64 differs from the module's output by at most {number_text(last.formula_error)}. The gradient "
        "subtracts two means, because μ and σ depend on every input of the channel.",
        {"output, largest distance": last.formula_error, "gradient, relative": last.gradient_error},
    )


def _weight_of_start(momentum: float | None, batches: int) -> float:
    """What is left of the initial statistics: (1 − m)^k; nothing for the cumulative average."""
    return 0.0 if momentum is None else (1 - momentum) ** batches


def _sizes(result: Result) -> Iterator[Finding]:
    rows = [row for row in result.sizes or () if row.ratio is not None and row.predicted is not None]
    chosen = next((row for row in rows if row.batch == (result.chosen or {})["batch"]), rows[0])  # torch refuses some
    assert chosen.ratio is not None
    assert chosen.predicted is not None
    yield Finding(
        "surprise",
        f"With n = {chosen.values} eval output is {1 - chosen.ratio:.2%} smaller than train output",
        "Even when the layer has stored exactly this batch (momentum 1) both modes differ: train mode divides by the biased "
        f"variance, eval mode by the stored unbiased one. √((σ_b² + ε)/(σ_u² + ε)) = {chosen.predicted:.6f}.",
        {"measured": chosen.ratio, "predicted": chosen.predicted, "limit": chosen.limit},
    )
    worst = max(row.worst_error or 0.0 for row in rows)
    yield Finding(
        "fact",
        "Measurement and formula agree for every batch size",
        f"Largest distance over {len(rows)} sizes and all channels: {number_text(worst)}.",
        {"largest distance": worst},
    )
    refused = next((row for row in result.sizes or () if row.error), None)
    if refused:
        yield Finding(
            "warning",
            "A batch with one value a channel is refused",
            f"torch says: {refused.error}. One value has no variance.",
            {"values of a channel": refused.values},
            repair="drop_last=True in the DataLoader; eval() for prediction; GroupNorm or LayerNorm for tiny batches.",
        )


def _serving(result: Result) -> Iterator[Finding]:
    rows = result.serving or ()
    here = next(row for row in rows if row.shift == (result.chosen or {})["shift"])
    still = next(row for row in rows if row.shift == 0)
    yield Finding(
        "warning" if here.gap > 2 * still.gap else "fact",
        f"Eval output is {number_text(here.gap)} away from what train mode would give",
        f"The data became {here.scale:g} · x + {here.shift:g} after training. Eval mode goes on subtracting the stored mean: its output has "
        f"mean {number_text(here.eval_mean)} and std {number_text(here.eval_std)}. Without a shift the gap is {number_text(still.gap)}.",
        {"gap": here.gap, "from means and variances": here.predicted, "gap without shift": still.gap},
        repair="Recompute the statistics on serving data: reset_running_stats(), momentum=None, one pass in train mode.",
    )
    yield Finding(
        "surprise",
        "Train mode would hide the shift",
        "It normalises every batch to mean 0 and variance 1, so a model in train mode looks right on shifted data, and depends on "
        "which samples share a batch.",
        {"gap": here.gap, "mean of eval output": here.eval_mean},
    )


def _norms(result: Result) -> Iterator[Finding]:
    rows = result.norms or ()
    batch, stored = (next(r for r in rows if (r.layer, r.mode) == ("BatchNorm2d", mode)) for mode in ("train", "eval"))
    alone = [r.layer for r in rows if r.mode == "train" and r.samples == 1]
    yield Finding(
        "fact",
        "Only BatchNorm looks at other samples",
        f"In train mode one output of BatchNorm2d depends on {batch.values} values of {batch.samples} samples, all in its own channel. "
        f"{', '.join(alone)} stay inside the sample. Read from the gradient, not from the documentation.",
        {f"{r.layer}, values": r.values for r in rows if r.mode == "train"},
    )
    yield Finding(
        "surprise",
        "In eval mode BatchNorm is a fixed scale and shift",
        f"Its output then depends on {stored.values} value: the element itself. The other layers compute the same in both modes.",
        {"values in train mode": batch.values, "values in eval mode": stored.values},
    )
    rms_norm = next(r for r in rows if r.layer == "RMSNorm")
    yield Finding(
        "fact",
        "RMSNorm does not subtract the mean",
        f"It divides by the root mean square only: over its own values the output has mean {number_text(rms_norm.mean)}, where LayerNorm has 0.",
        {"mean of RMSNorm": rms_norm.mean},
    )
    yield from _norm_defaults(result)


def _freezing(result: Result) -> Iterator[Finding]:
    rows, row = {r.name: r for r in result.treatments or ()}, readings.treatment(result)
    surprising = row.batches_counted != 1 or row.name not in ("train mode",)
    yield Finding(
        "surprise" if surprising else "fact",
        f"{row.name}: {row.batches_counted} batch{'es' * (row.batches_counted != 1)} counted, running mean moved by {number_text(row.mean_moved)}",
        row.meaning + (f" torch says: {row.error}" if row.error else ""),
        {"batches counted": row.batches_counted, "running mean moved": row.mean_moved, "weight gets a gradient": str(row.weight_gradient)},
        repair="" if row.name in ("train mode", "frozen properly") else "To freeze: requires_grad_(False), eval(), and keep eval() when model.train() is called.",
        change={} if row.name == "frozen properly" else {"treatment": "frozen properly"},
    )  # fmt: skip
    kept = rows["empty state dict"]
    yield Finding(
        "fact",
        "Three things can move, by three causes",
        "The affine weight by its gradient, the running statistics by a forward in train mode, the output by either. "
        f"requires_grad=False moved the running mean by {number_text(rows['requires_grad=False'].mean_moved)}, eval() by "
        f"{number_text(rows['eval()'].mean_moved)}.",
        {"two micro-batches, output differs": rows["two micro-batches"].output_gap, "empty state dict, counter changed": kept.batches_counted},
    )  # fmt: skip
    again = result.recomputed
    assert again
    yield Finding(
        "fact",
        "Statistics can be recomputed without training",
        "reset_running_stats(), momentum=None and one pass in train mode give the mean of the batches. Channel 0: momentum 0.1 had left "
        f"{number_text(again.before[0])}, recomputed {number_text(again.running_mean[0])}, mean of all data {number_text(again.data_mean[0])}.",
        {"before": again.before[0], "recomputed": again.running_mean[0], "mean of the data": again.data_mean[0]},
    )


def _switches(result: Result) -> Iterator[Finding]:
    rows = {(r.mode, r.gradients): r for r in result.switches or ()}
    eval_grad, train_off, eval_off = rows["eval", "grad"], rows["train", "no_grad"], rows["eval", "no_grad"]
    yield Finding(
        "surprise",
        "eval() leaves gradients on",
        f"After eval() the output still has requires_grad={eval_grad.requires_grad}, a graph of {eval_grad.graph_nodes} nodes, and "
        f"{bytes_text(eval_grad.saved_bytes)} kept for a backward that nobody will call.",
        {
            "saved_bytes": eval_grad.saved_bytes,
            "with no_grad_bytes": eval_off.saved_bytes,
            "nodes": eval_grad.graph_nodes,
        },
        repair="Predict in eval mode and under torch.inference_mode().",
        change={"mode": "eval", "gradients": "inference_mode"},
    )
    yield Finding(
        "surprise",
        "no_grad leaves Dropout on and BatchNorm moving",
        f"In train mode under no_grad {train_off.dropped_fraction:.1%} of the active units were dropped, two calls differ by "
        f"{number_text(train_off.output_spread)}, and BatchNorm counted {train_off.batches_counted} batch.",
        {"dropped": train_off.dropped_fraction, "batches counted": train_off.batches_counted},
        repair="model.eval() before validation.",
    )
    outputs = {
        mode: {rows[mode, g].output for g in ("grad", "no_grad", "inference_mode")} for mode in ("train", "eval")
    }
    same = all(len(found) == 1 for found in outputs.values())
    yield Finding(
        "fact",
        "The switches are independent",
        "The mode decides what layers compute; recording decides what is remembered. With the same seed the output of a mode is "
        f"{'the same to the last bit' if same else 'not the same'} under grad, no_grad and inference_mode.",
        {"distinct outputs in train mode": len(outputs["train"]), "in eval mode": len(outputs["eval"])},
    )
    yield Finding(
        "fact",
        "What recording costs in time",
        "Median of several forwards of this small network, in eval mode. Larger layers hide the difference.",
        {f"{g}_s": rows["eval", g].forward_s for g in ("grad", "no_grad", "inference_mode")},
    )


def _modules(result: Result) -> Iterator[Finding]:
    scan, scanned = result.scan, readings.modes(result)
    assert scan
    for call in scanned.ignoring[:2]:
        where = f" in {call.module}" if call.module else ""
        yield Finding(
            "warning",
            f"{call.function} ignores eval(){where}",
            f"It ran with {call.argument or 'no argument that could switch it off'} while every module was in eval mode. Two calls after eval() "
            f"differ by {scanned.eval_spread:.1%} of the output.",
            {"relative distance of two eval outputs": scanned.eval_spread, "kind": call.kind},
            line=call.line,
            repair="dropout_p=self.p if self.training else 0.0"
            if "dropout_p" in call.argument
            else "training=self.training",
        )
    if scanned.in_train_mode and scanned.in_eval_mode:
        yield Finding(
            "warning",
            "The model is in both modes at once",
            f"{scanned.in_train_mode} modules are in train mode and {scanned.in_eval_mode} in eval mode. That is right for frozen BatchNorm and "
            "for MC dropout, and a mistake otherwise.",
            {"in train mode": scanned.in_train_mode, "in eval mode": scanned.in_eval_mode},
            repair="model.train() or model.eval() sets all of them.",
        )
    changing = sorted((m for m in scanned.modules if m.gap > 0), key=lambda m: -m.gap)
    if changing:
        first = changing[0]
        yield Finding(
            "fact",
            f"{first.path} ({first.type}) changes the output most",
            f"Alone in train mode it moves the output by {first.gap:.1%}; all {len(changing)} modules that change something together by "
            f"{scanned.gap_together:.1%}. Gaps do not add up: one layer works on what another changed.",
            {"alone": first.gap, "together": scanned.gap_together, "modules": len(changing)},
        )
    elif not scanned.ignoring:
        yield Finding(
            "fact",
            "Nothing changes under eval()",
            "No module of this model gives another output in train mode.",
            {"modules": scanned.module_count},
        )
    if scan.loss_train is not None and scan.loss_eval is not None:
        yield Finding(
            "fact",
            f"Loss {number_text(scan.loss_train)} in train mode, {number_text(scan.loss_eval)} in eval mode",
            f"Same weights, same data; {scan.loss_name}.",
            {"train mode": scan.loss_train, "eval mode": scan.loss_eval},
        )  # fmt: skip


def _cost(result: Result) -> Iterator[Finding]:
    cost = readings.cost(result)
    rows = {(r.setting, r.batch): r for r in cost.rows}
    right, small, large = cost.rows[0], rows["train mode", 2], rows["train mode", 128]
    ordered, after = rows["train mode, sorted by class", 128], rows["eval() after that", 128]
    yield Finding(
        "warning",
        f"Forgetting eval() costs {right.accuracy - small.accuracy:.1%} of accuracy in batches of two",
        f"The same trained weights answer {right.accuracy:.1%} of {cost.test_points:,} test points in eval mode, {small.accuracy:.1%} in train mode "
        f"with batches of 2, {large.accuracy:.1%} with batches of 128: the smaller the batch, the noisier its statistics.",
        {"eval()": right.accuracy, "batches of 2": small.accuracy, "batches of 128": large.accuracy},
        repair="model.eval() before validation, model.train() after it.",
    )
    yield Finding(
        "surprise",
        "Sorted data are worse than small batches",
        f"When a batch holds one class only, BatchNorm subtracts what tells the classes apart: {ordered.accuracy:.1%}.",
        {"shuffled": large.accuracy, "sorted by class": ordered.accuracy},
        repair="Shuffle, or evaluate in eval mode, where the batch does not matter.",
    )
    yield Finding(
        "surprise",
        "The forgotten pass leaves its mark",
        f"It stored the statistics of the test batches. eval() afterwards: loss {number_text(after.loss)} instead of {number_text(right.loss)}.",
        {"loss before": right.loss, "loss after": after.loss},
        repair="Restore the buffers from a checkpoint, or recompute the statistics on training data.",
    )  # fmt: skip


_LOOKS: dict[str, Callable[[Result], Iterator[Finding]]] = {
    "masks": _masks,
    "convergence": _masks,
    "MC dropout": _mc,
    "who listens": _listeners,
    "batch by batch": _trace,
    "batch size": _sizes,
    "serving": _serving,
    "other norms": _norms,
    "freezing": _freezing,
    "both switches": _switches,
    "modules": _modules,
    "forgotten eval": _cost,
}
