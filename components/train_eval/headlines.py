"""The headline numbers of each study on train and eval mode, from the wire form of a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lab.quantities import bytes_text, number_text, seconds_text

Data = Mapping[str, Any]
Metric = tuple[str, str, str]
"""Name, value, and what it is compared with."""


def _mask_metrics(result: Data) -> list[Metric]:
    r = result["dropout"]
    low, high = r["expected_interval"]
    eval_text = f"{r['eval_dropped_fraction']:.1%} dropped"
    return [
        (f"Share of {r['unit']}s dropped", f"{r['dropped_fraction']:.4f}", f"{r['level']:.1%}: {low:.4f} to {high:.4f}"),
        ("Kept values ×", number_text(r["kept_scale"]), _kept_words(r)),
        ("Output mean", number_text(r["mean"]), f"predicted {number_text(r['predicted']['mean'])}"),
        ("Output variance", number_text(r["variance"]), f"predicted {number_text(r['predicted']['variance'])}"),
        ("After eval()", eval_text, "the input, unchanged" if r["eval_gap"] == 0 else "eval() has no effect"),
    ]  # fmt: skip


def _kept_words(reading: Data) -> str:
    if reading["kept_shift"]:
        return f"then {number_text(reading['kept_shift'])} is added"
    return "1/(1 − p)"


def _mc_metrics(result: Data) -> list[Metric]:
    mc = result["mc_dropout"]
    predicted = sum(s["predicted_std"] for s in mc["samples"]) / len(mc["samples"])
    return [
        ("Spread (std), mean over inputs", number_text(mc["mean_std"]), f"closed form {number_text(predicted)}"),
        ("Cost", f"{mc['all_passes_s'] / mc['one_pass_s']:.0f} ×", f"{mc['passes']} passes {seconds_text(mc['all_passes_s'])}, one {seconds_text(mc['one_pass_s'])}"),
        ("Batches that BatchNorm counted", str(mc["batchnorm_batches"]), "only the dropout layer is in train mode"),
    ]  # fmt: skip


def _listener_metrics(result: Data) -> list[Metric]:
    rows = result["listeners"]
    deaf = [row["name"] for row in rows if row["eval_spread"] > 0]
    batch = [row["name"] for row in rows if row["needs_the_batch"]]
    return [
        ("Still random after eval()", str(len(deaf)), f"of {len(rows)} layers and functions"),
        ("Need the batch after eval()", str(len(batch)), ", ".join(batch) or "none"),
    ]


def _trace_metrics(result: Data) -> list[Metric]:
    last = result["batchnorm"][-1]
    biased, unbiased = last["batch_var_biased"][0], last["batch_var_unbiased"][0]
    found = [
        ("Variance that normalises", number_text(biased), f"÷ n, n = {last['values']}"),
        (
            "Variance that is stored",
            number_text(unbiased),
            f"÷ (n − 1), {number_text(unbiased / biased)} ×",
        ),
    ]
    if last["running_mean"]:
        found += [
            ("Running mean", number_text(last["running_mean"][0]), f"{last['num_batches_tracked']} batches; data: 1"),
            ("Running variance", number_text(last["running_var"][0]), "data: 1"),
        ]  # fmt: skip
    return [*found, ("Train − eval output", number_text(last["mode_gap"]), "rms, last batch")]


def _size_metrics(result: Data) -> list[Metric]:
    row = next(r for r in result["sizes"] if r["batch"] == result["chosen"]["batch"])
    if row["ratio"] is None:
        return [("Batch of one", "refused", row["error"])]
    return [
        ("Eval output ÷ train output", f"{row['ratio']:.6f}", f"batch of {row['batch']}, n = {row['values']}"),
        ("√((σ_b² + ε)/(σ_u² + ε))", f"{row['predicted']:.6f}", f"largest distance over channels {number_text(row['worst_error'])}"),
        ("Limit √((n − 1)/n)", f"{row['limit']:.6f}", "for ε = 0"),
    ]  # fmt: skip


def _serving_metrics(result: Data) -> list[Metric]:
    row = next(r for r in result["serving"] if r["shift"] == result["chosen"]["shift"])
    still = next(r for r in result["serving"] if r["shift"] == 0)
    return [
        ("Gap at this shift", number_text(row["gap"]), f"rms; from means and variances {number_text(row['predicted'])}"),
        ("Gap without shift", number_text(still["gap"]), f"scale {row['scale']:g}, {len(result['batchnorm'])} batches seen"),
        ("Mean of the eval output", number_text(row["eval_mean"]), "0 when serving looks like training"),
        ("Std of the eval output", number_text(row["eval_std"]), "1 when serving looks like training"),
    ]  # fmt: skip


def _norm_metrics(result: Data) -> list[Metric]:
    return [
        (row["layer"], str(row["values"]), f"values, {row['samples']} sample{'s' * (row['samples'] != 1)}")
        for row in result["norms"]
        if row["mode"] == "train"
    ]


def _treatment_metrics(result: Data) -> list[Metric]:
    row = next(r for r in result["treatments"] if r["name"] == result["chosen"]["treatment"])
    moved = number_text(row["mean_moved"]) if row["mean_moved"] else "no"
    return [
        ("Batches counted", str(row["batches_counted"]), row["name"]),
        ("Running mean moved", moved, "largest change over channels"),
        ("Weight gets a gradient", "yes" if row["weight_gradient"] else "no", "affine weight of the layer"),
    ]


def _switch_metrics(result: Data) -> list[Metric]:
    chosen = result["chosen"]
    row = next(r for r in result["switches"] if (r["mode"], r["gradients"]) == (chosen["mode"], chosen["gradients"]))
    return [
        (f"{row['mode']}() with {row['gradients']}", "requires grad" if row["requires_grad"] else "no graph", row["graph"] or "no grad_fn"),
        ("Kept for backward", bytes_text(row["saved_bytes"]).partition(" (")[0], f"{row['saved_bytes']:,} B, {row['graph_nodes']} nodes"),
        ("Active units dropped", f"{row['dropped_fraction']:.1%}", f"p = {chosen['p']:g}"),
        ("Running statistics", "move" if row["statistics_moved"] else "stay", f"{row['batches_counted']} batches counted"),
        ("One forward", seconds_text(row["forward_s"]), "median of several"),
    ]  # fmt: skip


def _scan_metrics(result: Data) -> list[Metric]:
    scanned, modes = result["scan"], result["scan"]["modes"]
    found = [
        ("Modules that know the mode", str(len(modes["modules"])), f"of {modes['module_count']}; {modes['in_train_mode']} handed over in train mode"),
        ("Output gap together", f"{modes['gap_together']:.1%}", "rms, of the eval output"),
        ("Ignores eval()", str(len(modes["ignoring"])), "calls of a function" if modes["ignoring"] else "nothing found"),
    ]  # fmt: skip
    if scanned["loss_eval"] is not None:
        found.append(("Loss, train → eval", f"{number_text(scanned['loss_train'])} → {number_text(scanned['loss_eval'])}", scanned["loss_name"]))  # fmt: skip
    return found


def _cost_metrics(result: Data) -> list[Metric]:
    cost = result["scan"]["cost"]
    right, *others = cost["rows"]
    worst = min(others, key=lambda row: row["accuracy"])
    return [
        ("Accuracy after eval()", f"{right['accuracy']:.1%}", f"loss {number_text(right['loss'])}, {cost['test_points']:,} test points"),
        ("eval() forgotten, worst", f"{worst['accuracy']:.1%}", f"loss {number_text(worst['loss'])}: {worst['setting']}, batches of {worst['batch']}"),
        ("Lost", f"{right['accuracy'] - worst['accuracy']:.1%}", "the same weights"),
    ]  # fmt: skip


_METRICS: dict[str, Callable[[Data], list[Metric]]] = {
    "masks": _mask_metrics,
    "convergence": _mask_metrics,
    "MC dropout": _mc_metrics,
    "who listens": _listener_metrics,
    "batch by batch": _trace_metrics,
    "batch size": _size_metrics,
    "serving": _serving_metrics,
    "other norms": _norm_metrics,
    "freezing": _treatment_metrics,
    "both switches": _switch_metrics,
    "modules": _scan_metrics,
    "forgotten eval": _cost_metrics,
}


def headlines(study: str, result: Data) -> list[Metric]:
    """What to read first, at most five."""
    return _METRICS[study](result)
