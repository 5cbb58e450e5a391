"""Stop, save, build anew, load and go on; or look at files, names and refusals; or run a program."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

from lab.contract import Report
from lab.experiments.checkpoint_resume.files import file_cases, load_cases
from lab.experiments.checkpoint_resume.going_on import (
    Curve,
    compared,
    gaps_of,
    gone_on,
    parts_of,
    stopped,
    without,
)
from lab.experiments.checkpoint_resume.keys import load_keys, positions
from lab.experiments.checkpoint_resume.own_program import run_own
from lab.experiments.checkpoint_resume.schema import LEAVE_OUT, Params, Result
from lab.records.resume import Resumed
from lab.workloads.resumable_training import file_of, generators_kept


def run(params: Params, report: Report) -> Result:
    """The view that was asked for, and nothing else. Faults of a program do not raise: they are in ``fault``."""
    started = time.perf_counter()
    if params.view == "program":
        result = run_own(params, report)
    else:
        with generators_kept(), warnings.catch_warnings(action="ignore"):
            result = _VIEWS[params.view](params, report)
    return replace(result, code=params.code if params.view == "program" else "", seconds=time.perf_counter() - started)


def _curve(params: Params, report: Report) -> Result:
    report(0.0, "training up to the stop")
    trained, before = stopped(params)
    parts = trained.parts()
    file = file_of(parts)
    straight = gone_on(trained)
    report(0.1, "going on from the file")
    resumed = without(params, file, params.leave_out)
    chosen = compared(params.leave_out, straight, resumed, params.accumulate, params.stop_after)
    result = curve_result(straight, resumed, chosen, before, params)
    result = replace(result, parts=parts_of(parts, LEAVE_OUT[params.leave_out]), file_bytes=len(file))
    found: list[Resumed] = []
    for at, choice in enumerate(LEAVE_OUT):
        report(0.2 + 0.8 * at / len(LEAVE_OUT), f"leaving out: {choice}", result)
        curve = without(params, file, choice)
        found.append(compared(choice, straight, curve, params.accumulate, params.stop_after))
    return replace(result, omissions=tuple(found))


def curve_result(straight: Curve, resumed: Curve, chosen: Resumed, before: tuple[float, ...], params: Params) -> Result:
    """The two curves side by side."""
    return Result(
        view=params.view,
        stop_after=params.stop_after,
        before=before,
        straight=straight.losses,
        resumed=resumed.losses,
        gap=gaps_of(straight, resumed),
        lr_straight=straight.rates,
        lr_resumed=resumed.rates,
        first_different=chosen.first_different,
        weights_apart=chosen.weights_apart,
        eval_gap_model=chosen.eval_gap_model,
        eval_gap_average=chosen.eval_gap_average,
        chosen=chosen,
    )


def _file(params: Params, report: Report) -> Result:
    report(0.0, "writing the parts")
    trained, _ = stopped(params)
    parts = trained.parts()
    return Result(
        view="file", parts=parts_of(parts, ()), file_bytes=len(file_of(parts)), files=tuple(file_cases())
    )  # fmt: skip


def _keys(params: Params, report: Report) -> Result:
    report(0.0, "loading names and positions")
    return Result(view="keys", keys=load_keys(params), positions=positions(params))


def _loading(params: Params, report: Report) -> Result:
    report(0.0, "saving and loading objects")
    return Result(view="loading", refusals=tuple(load_cases()))


_VIEWS = {"curve": _curve, "file": _file, "keys": _keys, "loading": _loading}
