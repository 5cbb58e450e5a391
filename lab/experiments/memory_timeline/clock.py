"""Time of a step, in runs without the instrument."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence

import torch

from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.subject import build
from lab.program import run as program
from lab.records.memory import Seconds
from lab.workloads.training_step import Training

_MOST, _LEAST, _BUDGET_S = 8, 3, 0.25


def step_seconds(settings: Sequence[Params]) -> list[Seconds]:
    """Clock single steps of each setting, 3 to 8, about a quarter of a second of the first.

    The settings take turns, so that a machine that gets slower does so for all of them; each was warmed up with one
    step. On a device the clock is read only once it is idle.
    """
    with prepared(settings) as trainings:
        for training in trainings:
            training.run(1)
        times: list[list[float]] = [[] for _ in settings]
        while len(times[0]) < _LEAST or (len(times[0]) < _MOST and sum(times[0]) < _BUDGET_S):
            for training, seconds in zip(trainings, times, strict=True):
                seconds.append(_one_step(training))
    return [Seconds(statistics.median(s), min(s), max(s), len(s)) for s in times]


@contextlib.contextmanager
def prepared(settings: Sequence[Params]) -> Iterator[list[Training]]:
    """A training of each setting; the collector of Python is off inside, when it runs is chance."""
    trainings = []
    with warnings.catch_warnings(action="ignore"):
        for params in settings:
            with program.torch_defaults(params.seed, params.device):
                trainings.append(build(params).training)
        collects = gc.isenabled()
        gc.disable()
        try:
            yield trainings
        finally:
            if collects:
                gc.enable()


def _one_step(training: Training) -> float:
    _wait(training.device)
    started = time.perf_counter()
    training.run(1)
    _wait(training.device)
    taken = time.perf_counter() - started
    training.kept.clear()
    return taken


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
