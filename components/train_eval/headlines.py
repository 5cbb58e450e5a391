"""The headline numbers of each study on train and eval mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from components.kit.headline import Metric
from lab.quantities import number_text, seconds_text, short_bytes_text
from lab.records.modes import ModesResult, Scan
from lab.records.modes_batchnorm import BatchRow, Reach, ServingRow, SizeRow, Treatment
from lab.records.modes_dropout import DropoutReading, Listener, McReading
from lab.records.modes_models import ForgottenEval, SwitchRow

T = TypeVar("T")


def part(found: T | None) -> T:
    """A part of the result that its study always has."""
    assert found is not None
    return found


def _mask_metrics(r: DropoutReading) -> list[Metric]:
    low, high = r.expected_interval
    eval_text = f"{r.eval_dropped_fraction:.1%} dropped"
    return [
        (f"Share of {r.unit}s dropped", f"{r.dropped_fraction:.4f}", f"{r.level:.1%}: {low:.4f} to {high:.4f}"),
        ("Kept values ×", number_text(r.kept_scale), _kept_words(r)),
        ("Output mean", number_text(r.mean), f"predicted {number_text(r.predicted.mean)}"),
        ("Output variance", number_text(r.variance), f"predicted {number_text(r.predicted.variance)}"),
        ("After eval()", eval_text, "the input, unchanged" if r.eval_gap == 0 else "eval() has no effect"),
    ]  # fmt: skip


def _kept_words(reading: DropoutReading) -> str:
    if reading.kept_shift:
        return f"then {number_text(reading.kept_shift)} is added"
    return "1/(1 − p)"


def _mc_metrics(mc: McReading) -> list[Metric]:
    predicted = sum(s.predicted_std for s in mc.samples) / len(mc.samples)
    return [
        ("Spread (std), mean over inputs", number_text(mc.mean_std), f"closed form {number_text(predicted)}"),
        ("Cost", f"{mc.all_passes_s / mc.one_pass_s:.0f} ×", f"{mc.passes} passes {seconds_text(mc.all_passes_s)}, one {seconds_text(mc.one_pass_s)}"),
        ("Batches that BatchNorm counted", str(mc.batchnorm_batches), "only the dropout layer is in train mode"),
    ]  # fmt: skip


def _listener_metrics(rows: Sequence[Listener]) -> list[Metric]:
    deaf = [row.name for row in rows if row.eval_spread > 0]
    batch = [row.name for row in rows if row.needs_the_batch]
    return [
        ("Still random after eval()", str(len(deaf)), f"of {len(rows)} layers and functions"),
        ("Need the batch after eval()", str(len(batch)), ", ".join(batch) or "none"),
    ]


def _trace_metrics(last: BatchRow) -> list[Metric]:
    biased, unbiased = last.batch_var_biased[0], last.batch_var_unbiased[0]
    found = [
        ("Variance that normalises", number_text(biased), f"÷ n, n = {last.values}"),
        (
            "Variance that is stored",
            number_text(unbiased),
            f"÷ (n − 1), {number_text(unbiased / biased)} ×",
        ),
    ]
    if last.running_mean and last.running_var:
        found += [
            ("Running mean", number_text(last.running_mean[0]), f"{last.num_batches_tracked} batches; data: 1"),
            ("Running variance", number_text(last.running_var[0]), "data: 1"),
        ]  # fmt: skip
    return [*found, ("Train − eval output", number_text(last.mode_gap), "rms, last batch")]


def _size_metrics(row: SizeRow) -> list[Metric]:
    if row.ratio is None:
        return [("Batch of one", "refused", row.error)]
    return [
        ("Eval output ÷ train output", f"{row.ratio:.6f}", f"batch of {row.batch}, n = {row.values}"),
        ("√((σ_b² + ε)/(σ_u² + ε))", f"{row.predicted:.6f}", f"largest distance over channels {number_text(part(row.worst_error))}"),
        ("Limit √((n − 1)/n)", f"{row.limit:.6f}", "for ε = 0"),
    ]  # fmt: skip


def _serving_metrics(rows: Sequence[ServingRow], shift: float, batches: int) -> list[Metric]:
    row, still = (next(r for r in rows if r.shift == wanted) for wanted in (shift, 0))
    return [
        ("Gap at this shift", number_text(row.gap), f"rms; from means and variances {number_text(row.predicted)}"),
        ("Gap without shift", number_text(still.gap), f"scale {row.scale:g}, {batches} batches seen"),
        ("Mean of the eval output", number_text(row.eval_mean), "0 when serving looks like training"),
        ("Std of the eval output", number_text(row.eval_std), "1 when serving looks like training"),
    ]  # fmt: skip


def _norm_metrics(rows: Sequence[Reach]) -> list[Metric]:
    return [
        (row.layer, str(row.values), f"values, {row.samples} sample{'s' * (row.samples != 1)}")
        for row in rows
        if row.mode == "train"
    ]


def _treatment_metrics(row: Treatment) -> list[Metric]:
    moved = number_text(row.mean_moved) if row.mean_moved else "no"
    return [
        ("Batches counted", str(row.batches_counted), row.name),
        ("Running mean moved", moved, "largest change over channels"),
        ("Weight gets a gradient", "yes" if row.weight_gradient else "no", "affine weight of the layer"),
    ]


def _switch_metrics(row: SwitchRow, p: float) -> list[Metric]:
    return [
        (f"{row.mode}() with {row.gradients}", "requires grad" if row.requires_grad else "no graph", row.graph or "no grad_fn"),
        ("Kept for backward", short_bytes_text(row.saved_bytes), f"{row.saved_bytes:,} B, {row.graph_nodes} nodes"),
        ("Active units dropped", f"{row.dropped_fraction:.1%}", f"p = {p:g}"),
        ("Running statistics", "move" if row.statistics_moved else "stay", f"{row.batches_counted} batches counted"),
        ("One forward", seconds_text(row.forward_s), "median of several"),
    ]  # fmt: skip


def _scan_metrics(scanned: Scan) -> list[Metric]:
    modes = part(scanned.modes)
    found = [
        ("Modules that know the mode", str(len(modes.modules)), f"of {modes.module_count}; {modes.in_train_mode} handed over in train mode"),
        ("Output gap together", f"{modes.gap_together:.1%}", "rms, of the eval output"),
        ("Ignores eval()", str(len(modes.ignoring)), "calls of a function" if modes.ignoring else "nothing found"),
    ]  # fmt: skip
    if scanned.loss_train is not None and scanned.loss_eval is not None:
        found.append(("Loss, train → eval", f"{number_text(scanned.loss_train)} → {number_text(scanned.loss_eval)}", scanned.loss_name))  # fmt: skip
    return found


def _cost_metrics(cost: ForgottenEval) -> list[Metric]:
    right, *others = cost.rows
    worst = min(others, key=lambda row: row.accuracy)
    return [
        ("Accuracy after eval()", f"{right.accuracy:.1%}", f"loss {number_text(right.loss)}, {cost.test_points:,} test points"),
        ("eval() forgotten, worst", f"{worst.accuracy:.1%}", f"loss {number_text(worst.loss)}: {worst.setting}, batches of {worst.batch}"),
        ("Lost", f"{right.accuracy - worst.accuracy:.1%}", "the same weights"),
    ]  # fmt: skip


def _chosen_switches(result: ModesResult) -> SwitchRow:
    wanted = result.chosen.mode, result.chosen.gradients
    return next(r for r in part(result.switches) if (r.mode, r.gradients) == wanted)


def _chosen_size(result: ModesResult) -> SizeRow:
    return next(r for r in part(result.sizes) if r.batch == result.chosen.batch)


def _chosen_treatment(result: ModesResult) -> Treatment:
    return next(r for r in part(result.treatments) if r.name == result.chosen.treatment)


_METRICS: dict[str, Callable[[ModesResult], list[Metric]]] = {
    "masks": lambda r: _mask_metrics(part(r.dropout)),
    "convergence": lambda r: _mask_metrics(part(r.dropout)),
    "MC dropout": lambda r: _mc_metrics(part(r.mc_dropout)),
    "who listens": lambda r: _listener_metrics(part(r.listeners)),
    "batch by batch": lambda r: _trace_metrics(part(r.batchnorm)[-1]),
    "batch size": lambda r: _size_metrics(_chosen_size(r)),
    "serving": lambda r: _serving_metrics(part(r.serving), r.chosen.shift, len(part(r.batchnorm))),
    "other norms": lambda r: _norm_metrics(part(r.norms)),
    "freezing": lambda r: _treatment_metrics(_chosen_treatment(r)),
    "both switches": lambda r: _switch_metrics(_chosen_switches(r), r.chosen.p),
    "modules": lambda r: _scan_metrics(part(r.scan)),
    "forgotten eval": lambda r: _cost_metrics(part(part(r.scan).cost)),
}


def headlines(study: str, result: ModesResult) -> list[Metric]:
    """What to read first, at most five."""
    return _METRICS[study](result)
