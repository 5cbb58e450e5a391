"""Count a program's waits; time copies on the host, and on a GPU copies beside kernels."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from lab.contract import Report
from lab.experiments.transfers.copies import device_copies, early_reads, flags, host_copies, overlapped
from lab.experiments.transfers.own_program import run_own
from lab.experiments.transfers.schema import Params, Result
from lab.workloads.resumable_training import generators_kept

NEEDS = "a CUDA device: copies beside kernels, pinned memory and early reads cannot be shown without one"


def run(params: Params, report: Report) -> Result:
    """The view that was asked for. Faults of a program do not raise: they are in ``fault``."""
    started = time.perf_counter()
    if params.view == "waits":
        result = run_own(params, report)
    else:
        with generators_kept():
            result = _copies(params, report) if params.view == "copies" else _overlap(params, report)
    return replace(result, seconds=time.perf_counter() - started)


def _copies(params: Params, report: Report) -> Result:
    measured = device_copies if params.device == "cuda" else host_copies
    return Result(view="copies", bandwidth=measured(report), flags=tuple(flags()))


def _overlap(params: Params, report: Report) -> Result:
    if not torch.cuda.is_available():
        return Result(view="overlap", needs_gpu=NEEDS, flags=tuple(flags()))
    report(0.0, "copies beside kernels")
    lanes, hidden = overlapped(params.chunks)
    wrong, reads = early_reads() if params.read_early else (None, 0)
    return Result(
        view="overlap", lanes=lanes, overlap=hidden, early_wrong=wrong, early_reads=reads, flags=tuple(flags())
    )
