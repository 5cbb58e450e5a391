"""Gradients against the window of a format, a scaler at work, a program's operations, lost updates, matrix products."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import torch

from lab.contract import Report
from lab.experiments.mixed_precision.formats import (
    REAL_SCALES,
    exponents,
    gradients_of,
    layer_losses,
    measured_formats,
    real_backward,
    shares_of,
    zero_share,
)
from lab.experiments.mixed_precision.own_program import run_own
from lab.experiments.mixed_precision.scaling import scaler_steps
from lab.experiments.mixed_precision.schema import Params, Result
from lab.experiments.mixed_precision.updates import drifts, lost_updates, matmul_errors, step_seconds


def run(params: Params, report: Report) -> Result:
    """The view that was asked for. Faults of a program do not raise: they are in ``fault``."""
    started = time.perf_counter()
    if params.view == "ops":
        result = run_own(params, report)
    else:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings(action="ignore"):
            result = _VIEWS[params.view](params, report)
            torch.clear_autocast_cache()
    return replace(result, seconds=time.perf_counter() - started)


def _window(params: Params, report: Report) -> Result:
    report(0.0, "backward in float32")
    _, full = gradients_of(params.depth, params.activation)
    values = torch.cat([g for _, g in full])
    histogram, total, zeros = exponents(full)
    real = real_backward(params.depth, params.activation, params.dtype, params.init_scale)
    measured = {(params.dtype, params.init_scale): zero_share(real, full)}
    result = Result(
        view="window", format=params.format, dtype=params.dtype, histogram=histogram, gradients=total, zeros=zeros,
        formats=measured_formats(), shares=shares_of(values, measured),
        layers=layer_losses(real, full, params.dtype, params.init_scale),
    )  # fmt: skip
    for at, power in enumerate(REAL_SCALES):
        report((at + 1) / (len(REAL_SCALES) + 1), f"backward in {params.dtype}, scale 2^{power}", result)
        if params.dtype != "fp32":
            low = real_backward(params.depth, params.activation, params.dtype, 2.0**power)
            measured[params.dtype, 2.0**power] = zero_share(low, full)
    return replace(result, shares=shares_of(values, measured))


def _scaler(params: Params, report: Report) -> Result:
    result = Result(view="scaler", dtype=params.dtype, clip=params.clip)
    for step in scaler_steps(params):
        result = replace(result, steps=(*result.steps, step))
        if step.step % 10 == 9:
            report((step.step + 1) / params.steps, f"step {step.step + 1} of {params.steps}", result)
    return result


def _updates(params: Params, report: Report) -> Result:
    result = Result(view="updates", moved=tuple(lost_updates()))
    report(0.5, "sums and averages", result)
    return replace(result, drifts=tuple(drifts()))


def _matmul(params: Params, report: Report) -> Result:
    result = Result(view="matmul", matmul=tuple(matmul_errors()))
    report(0.7, "steps in turns", result)
    return replace(result, speed=step_seconds())


_VIEWS = {"window": _window, "scaler": _scaler, "updates": _updates, "matmul": _matmul}
