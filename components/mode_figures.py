"""The figures of the page on train and eval mode: headline numbers, chart and table of each study, from the wire form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from components.charts import batchnorm, dropout, scan, switches
from components.charts.lamps import Drawn
from components.palette import Theme
from lab.quantities import bytes_text, number_text, seconds_text

Data = Mapping[str, Any]
Metric = tuple[str, str, str]
"""Name, value, and what it is compared with."""


def theme() -> Theme:
    """The theme that the visitor sees."""
    return "dark" if st.context.theme.type == "dark" else "light"


def draw_figure(result: Data, key: str, presenting: bool) -> None:
    """Headline numbers, then the one figure of the study; larger when ``presenting``."""
    study = _drawable(result)
    if not study:
        st.caption("For example")
        st.code(_EXAMPLE, wrap_lines=True)
        return
    metrics, figure = _FIGURES[study]
    with st.container(horizontal=True, key=f"{key}-headline"):
        for name, value, against in metrics(result):
            with st.container(width="content", gap=None):
                st.caption(name)
                st.markdown(f"### {value}")
                st.caption(against)
    charts = figure(result, key)
    charts = charts if isinstance(charts, list) else [charts]
    for number, chart in enumerate(charts):
        drawn = _enlarged(chart, 1.7) if presenting and len(charts) == 1 else chart
        st.altair_chart(drawn, key=f"{key}-{study}-{number}", width="stretch")


def _enlarged(chart: Drawn, factor: float) -> alt.LayerChart:
    """The same chart for a projector: taller, with larger words on the marks. Axes follow the page's own type."""

    def grown(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {k: grown(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [grown(v) for v in value]
        return value * factor if name in ("height", "fontSize") and isinstance(value, (int, float)) else value

    spec = chart.to_dict()
    data = {name: spec.pop(name) for name in ("datasets",) if name in spec}
    return alt.LayerChart.from_dict({**grown(spec), **data})


_EXAMPLE = """model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
batch = (torch.randn(32, 8), torch.randint(0, 3, (32,)))
"""
"""Stands in place of the figure of a program that is missing or has failed."""


def _drawable(result: Data) -> str:
    """The study whose figure can be drawn; empty when a visitor's program left nothing to draw."""
    study = result["study"]
    if study in ("batch by batch", "serving") and not result["batchnorm"]:
        return "batch size"  # torch refused the batch: show which sizes it takes
    return "" if study == "modules" and result["scan"]["modes"] is None else study


def headline_numbers(result: Any) -> dict[str, float]:
    """What two runs are compared by. Takes the Result itself."""
    found: dict[str, float] = {}
    if result.dropout:
        found |= {
            "share dropped": result.dropout.dropped_fraction,
            "mean": result.dropout.mean,
            "variance": result.dropout.variance,
        }
    if result.batchnorm:
        last = result.batchnorm[-1]
        found |= {"gap of the modes": last.mode_gap, "gap on fresh data": last.fresh_gap}
        found |= {"running mean, channel 0": last.running_mean[0]} if last.running_mean else {}
    if result.switches:
        here = next(
            r for r in result.switches if (r.mode, r.gradients) == (result.chosen["mode"], result.chosen["gradients"])
        )
        found |= {"saved_bytes": here.saved_bytes, "share dropped": here.dropped_fraction, "forward_s": here.forward_s}
    if result.scan and result.scan.modes:
        found |= {"gap together": result.scan.modes.gap_together, "modules that change": len(result.scan.modes.modules)}
    return found  # fmt: skip


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
        ("Ignores eval()", str(len(modes["ignoring"])), "calls" if modes["ignoring"] else "nothing found"),
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


def _trace_figure(result: Data, key: str) -> list[Drawn]:
    channels = len(result["batchnorm"][0]["batch_mean"])
    channel = 0
    if channels > 1:
        channel = int(st.pills("Channel", range(min(channels, 8)), default=0, required=True, key=f"{key}-channel", label_visibility="collapsed", format_func=lambda c: f"channel {c}") or 0)  # fmt: skip
    return batchnorm.trace_charts(result["batchnorm"], channel, theme())


_FIGURES: dict[str, tuple[Callable[[Data], list[Metric]], Callable[[Data, str], Any]]] = {
    "masks": (_mask_metrics, lambda r, key: dropout.mask_chart(r["dropout"], theme())),
    "convergence": (_mask_metrics, lambda r, key: dropout.convergence_charts({**r["dropout"], "p": r["chosen"]["p"]}, theme())),
    "MC dropout": (_mc_metrics, lambda r, key: dropout.mc_chart(r["mc_dropout"], theme())),
    "who listens": (_listener_metrics, lambda r, key: dropout.listener_chart(r["listeners"], theme())),
    "batch by batch": (_trace_metrics, _trace_figure),
    "batch size": (_size_metrics, lambda r, key: batchnorm.size_chart(r["sizes"], r["chosen"]["batch"], theme())),
    "serving": (_serving_metrics, lambda r, key: batchnorm.serving_charts(r["serving"], r["chosen"]["shift"], theme())),
    "other norms": (_norm_metrics, lambda r, key: batchnorm.reach_chart(r["norms"], theme())),
    "freezing": (_treatment_metrics, lambda r, key: batchnorm.treatment_chart(r["treatments"], r["chosen"]["treatment"], theme())),
    "both switches": (_switch_metrics, lambda r, key: switches.switch_chart(r["switches"], (r["chosen"]["mode"], r["chosen"]["gradients"]), theme())),
    "modules": (_scan_metrics, lambda r, key: scan.gap_chart(r["scan"]["modes"], theme())),
    "forgotten eval": (_cost_metrics, lambda r, key: scan.cost_chart(r["scan"]["cost"]["rows"], theme())),
}  # fmt: skip


def draw_tables(result: Data, key: str) -> None:
    """The numbers behind the figure, a tab each."""
    tables = {name: rows for name, rows in _tables(result) if rows}
    if not tables:
        return
    for tab, (name, rows) in zip(st.tabs(list(tables)), tables.items(), strict=True):
        with tab:
            data = pd.DataFrame(rows)
            numbers = {c: st.column_config.NumberColumn(format="%.7g") for c in data.select_dtypes("float")}
            st.dataframe(data, hide_index=True, column_config=numbers, key=f"{key}-{name}")


def _tables(result: Data) -> list[tuple[str, Sequence[Data]]]:
    scanned = result["scan"] or {}
    modes, cost = scanned.get("modes") or {}, scanned.get("cost") or {}
    study = result["study"]
    return [
        ("Convergence", result["dropout"]["convergence"] if study in ("masks", "convergence") else ()),
        ("Samples", (result["mc_dropout"] or {}).get("samples", ())),
        ("Layers", result["listeners"] or ()),
        ("Batches", result["batchnorm"] if study in ("batch by batch", "serving") else ()),
        ("Batch sizes", result["sizes"] or ()),
        ("Serving", result["serving"] or ()),
        ("Norms", [{k: v for k, v in row.items() if k != "shares"} for row in result["norms"] or ()]),
        ("Treatments", result["treatments"] or ()),
        ("Recomputed statistics", _columns(result["recomputed"])),
        ("Combinations", result["switches"] or ()),
        ("Modules", modes.get("modules", ()) if study == "modules" else ()),
        ("Ignores eval()", modes.get("ignoring", ())),
        ("Forgotten eval()", cost.get("rows", ()) if study == "forgotten eval" else ()),
    ]


def _columns(record: Data | None) -> list[Data]:
    """A record of equally long lists as rows, one a channel."""
    return [dict(zip(record, row, strict=True)) for row in zip(*record.values(), strict=True)] if record else []
