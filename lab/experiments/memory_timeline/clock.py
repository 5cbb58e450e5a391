"""Time of a step, in runs without the instrument."""

from __future__ import annotations

import gc
import statistics
import time
import warnings

import torch

from lab.experiments.memory_timeline.schema import Params, Seconds
from lab.experiments.memory_timeline.subject import build
from lab.workloads import program

_MOST, _LEAST, _BUDGET_S = 8, 3, 0.25


def step_seconds(params: Params) -> Seconds:
    """Build, warm up with one step, then clock single steps: 3 to 8, about a quarter of a second of them.

    On a device the clock is read only once it is idle.
    """
    with program.torch_defaults(params.seed, params.device), warnings.catch_warnings(action="ignore"):
        training = build(params).training
        training.run(1)
        times, collects = [], gc.isenabled()
        gc.disable()
        try:
            while len(times) < _LEAST or (len(times) < _MOST and sum(times) < _BUDGET_S):
                _wait(params.device)
                started = time.perf_counter()
                training.run(1)
                _wait(params.device)
                times.append(time.perf_counter() - started)
                training.kept.clear()
        finally:
            if collects:
                gc.enable()
    return Seconds(statistics.median(times), min(times), max(times), len(times))


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
