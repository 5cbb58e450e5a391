"""Send the same golden rows through both paths and compare every stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from lab.contract import Report
from lab.experiments.serving_skew import comparing
from lab.experiments.serving_skew.own_paths import run_own
from lab.experiments.serving_skew.schema import Params, Result
from lab.records.serving import Drift, Power
from lab.workloads.serving_paths import COLUMNS, SKEWS, Path, Row, rows, served_path, trained_path

POWER_ROWS = (1, 4, 16, 64, 256, 1024)
_LIVE = 256


def run(params: Params, report: Report) -> Result:
    """The view that was asked for. Faults of a program do not raise: they are in ``fault``."""
    started = time.perf_counter()
    result = run_own(params, report) if params.view == "own" else _planted(params, report)
    return replace(result, tolerance=params.tolerance, seconds=time.perf_counter() - started)


def _planted(params: Params, report: Report) -> Result:
    report(0.0, "training the small classifier")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return _VIEWS[params.view](params, report)


def golden_rows(params: Params, count: int) -> list[Row]:
    """``count`` rows of the kind that was asked for."""
    if params.golden == "all zeros":
        return [dict.fromkeys(COLUMNS, 0.0) for _ in range(count)]
    if params.golden == "one row repeated":
        return rows(1, params.seed + 1) * count
    return rows(count, params.seed + 1)


def _stages(params: Params, report: Report) -> Result:
    return compared(trained_path(), served_path(params.skew), golden_rows(params, params.golden_rows), params)


def compared(train: Path, serve: Path, golden: list[Row], params: Params) -> Result:
    """Both paths over ``golden``, the serving path twice. Weights and modes are looked at before anything runs: a forward in
    train mode changes running statistics, and the table would accuse them."""
    weights = comparing.weights_that_differ(train.model, serve.model)
    modes = comparing.modes_that_differ(train.model, serve.model)
    kinds = {str(p.dtype).removeprefix("torch.") for p in serve.model.parameters()}
    dtypes = tuple(sorted({str(serve.dtype).removeprefix("torch."), *kinds}))
    try:
        first, second, third = (_seeded(p.run, golden, params.seed + at) for at, p in enumerate((train, serve, serve)))
    except ValueError as error:  # BatchNorm in train mode refuses a single row: a departure that nobody overlooks
        return Result(
            view=params.view, skew=params.skew, rows=len(golden), refused=str(error), weights_differ=weights,
            modes_differ=modes, dtypes=dtypes,
        )  # fmt: skip
    stages = comparing.compare(first, second, third, params.tolerance)
    parted = comparing.first_of(stages)
    columns = comparing.columns_of(first, second, COLUMNS)
    random = comparing.random_from(stages)
    by = {stage.name: stage for stage in stages}
    shares = first["probabilities"], second["probabilities"]
    assert isinstance(shares[0], torch.Tensor)
    assert isinstance(shares[1], torch.Tensor)
    return Result(
        view=params.view,
        skew=params.skew,
        rows=len(golden),
        stages=stages,
        first=parted,
        cause=comparing.cause_of(
            parted, weights=weights, modes=modes, columns=columns, random=random, dtypes=dtypes, tolerance=params.tolerance
        ),
        labels_changed=by["label"].gap,
        probability_gap=float((shares[0] - shares[1]).abs().max()),
        columns=columns,
        weights_differ=weights,
        modes_differ=modes,
        dtypes=dtypes,
        random_from=random,
    )  # fmt: skip


def _seeded(path: Callable[[list[Row]], dict[str, Any]], golden: list[Row], seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    return path(golden)


def _power(params: Params, report: Report) -> Result:
    counts = sorted({*POWER_ROWS, params.golden_rows})
    found: list[Power] = []
    for at, count in enumerate(counts):
        golden = golden_rows(params, count)
        for skew in SKEWS:
            one = compared(trained_path(), served_path(skew), golden, replace(params, skew=skew))
            found.append(
                Power(skew, count, bool(one.first or one.refused), one.labels_changed, one.first or one.refused)
            )
        part = Result(view="power", rows=params.golden_rows, power=tuple(found))
        report((at + 1) / len(counts), f"{count} rows", part)
    return Result(view="power", rows=params.golden_rows, power=tuple(found))


def _drift(params: Params, report: Report) -> Result:
    golden = compared(trained_path(), served_path(params.skew), golden_rows(params, params.golden_rows), params)
    path = trained_path()
    live = torch.tensor([[row[c] for c in COLUMNS] for row in rows(_LIVE, params.seed + 8, age_shift=params.age_shift)])
    shift = ((live.mean(0) - path.mean) / path.std).tolist()
    return replace(golden, drift=tuple(Drift(name, value) for name, value in zip(COLUMNS, shift, strict=True)))


_VIEWS = {"stages": _stages, "power": _power, "drift": _drift}
