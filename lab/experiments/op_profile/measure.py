"""Run the step: first, warm-up, then bare and profiled in turn, then once with marks for modules and lines.

NOTE How the numbers stay clean.
1. Bare and profiled steps take turns, so that a machine that gets slower does so for both.
2. One profiler session a step: a step with very many events ends the profiling early instead of filling the memory.
3. Marks for modules and lines are in a step of their own; its times are used for nothing but ``overhead.marked_s``.
4. The collector of Python is off in timed steps: when it runs is chance.
5. Ceilings are measured before and after; the better counts.
6. On a device every clock is read only after it is idle.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.profiler import record_function

from lab.contract import Report
from lab.experiments.op_profile.assemble import result_of
from lab.experiments.op_profile.schema import Params, Result
from lab.experiments.op_profile.steps import ROOT, Measured, clocked_step, profiled_step
from lab.experiments.op_profile.subject import (
    FILES,
    NoStep,
    Subject,
    compile_fault,
    fault_of,
    subject,
)
from lab.experiments.op_profile.traps import spring
from lab.instruments.profiling.ceilings import best_of, measure_ceilings
from lab.instruments.profiling.places import CallMarks
from lab.instruments.profiling.session import OpSession
from lab.instruments.profiling.step_clock import PartClock, timed, unmarked
from lab.instruments.profiling.tree import build_tree
from lab.program import run as program
from lab.program.explain import is_missing_kernel
from lab.records.profiling import Iteration
from lab.records.program import SILENT
from lab.torch_private import require
from lab.workloads.profiled_step import TimedStep

EVENTS = 100_000
"""Of all profiled steps: some 100 MB in memory."""
BARE, _SLOW_S = 3, 0.05
"""Bare steps for each profiled one, unless a step takes longer than so many seconds."""
_OWN_S, _OURS_S = 10.0, 60.0
"""After so many seconds no further step is begun."""


def run(params: Params, report: Report) -> Result:
    """Measure one training step. Faults of a visitor's program do not raise: they are in ``fault``."""
    require("profiler events")
    report(0.0, "building the model")
    trap = spring(params.trap, params.device)
    with program.torch_defaults(params.seed, params.device if params.model == "own" else "cpu"):
        found = subject(params)
        if isinstance(found, NoStep):
            return result_of(params, Measured(fault=found.fault), (), trap, found.said)
        try:
            measured = _measure(params, found, report)
        finally:
            found.step.close()
    report(0.95, "reading the profile")
    said = found.ran.said if found.ran else SILENT  # with what the model printed while it was measured
    return result_of(params, measured, found.notes, trap, said)


def _measure(params: Params, found: Subject, report: Report) -> Measured:
    measured = Measured()
    deadline = time.monotonic() + (_OWN_S if params.model == "own" else _OURS_S)
    try:
        with _collector_off():
            before = measure_ceilings(params.device, _dtype(params))
            _warm_up(params, found.step, measured, deadline, report)
            _repeat(params, found.step, measured, deadline, report)
            if not params.compile:
                report(0.85, "one step for modules and lines")
                _mark(params, found.step, measured)
            report(0.9, "what this device can do at best")
            measured.ceilings = best_of(before, measure_ceilings(params.device, _dtype(params)))
    except Exception as error:
        if params.model == "own" or is_missing_kernel(error):
            measured.fault = fault_of(error, params)
        elif params.compile and not measured.iterations:
            measured.fault = compile_fault(error)
        else:
            raise
    return measured


def _warm_up(params: Params, step: TimedStep, measured: Measured, deadline: float, report: Report) -> None:
    for number in range(1 + params.warmup):
        if number and time.monotonic() > deadline:
            measured.cut = "The warm-up was ended: the steps are too slow to run all of them."
            return
        report(0.1 * number / (1 + params.warmup), "compiling" if params.compile and not number else "warming up")
        clock = PartClock()
        total_s = timed(lambda clock=clock: step(clock), params.device)
        if not number and params.compile:
            measured.compile_s = total_s
        kind = "warm-up" if number else "first"
        measured.iterations.append(Iteration(kind, clocked_step(clock.seconds, total_s), total_s))


def _repeat(params: Params, step: TimedStep, measured: Measured, deadline: float, report: Report) -> None:
    events = 0
    for number in range(params.steps):
        if number and time.monotonic() > deadline:
            measured.cut = f"{number} of {params.steps} steps were measured: the time for this run was over."
            return
        if number and events * (number + 1) / number > EVENTS:
            measured.cut = (
                f"{number} of {params.steps} steps were profiled: one has some {events // number:,} events, and a run keeps "
                f"at most {EVENTS:,}."
            )
            return
        report(
            0.1 + 0.75 * number / params.steps, f"step {number + 1} of {params.steps}, without and with the profiler"
        )
        for _ in range(BARE):
            bare_s = timed(lambda: step(unmarked), params.device)
            measured.iterations.append(Iteration("bare", None, bare_s))
            if bare_s > _SLOW_S:
                break
        session = OpSession(params.device)
        with session, record_function(ROOT):
            step(record_function)
        tree = build_tree(session.events)
        parts = profiled_step(tree)
        events += len(session.events)
        measured.trees.append(tree)
        measured.iterations.append(Iteration("profiled", parts, parts.total_s))


def _mark(params: Params, step: TimedStep, measured: Measured) -> None:
    session, marks = OpSession(params.device, memory=False), CallMarks(FILES)
    with session, marks, record_function(ROOT):
        step(record_function)
    measured.marked = build_tree(session.events), marks


def _dtype(params: Params) -> torch.dtype:
    return {"fp32": torch.float32, "fp16_autocast": torch.float16}.get(params.precision, torch.bfloat16)


@contextmanager
def _collector_off() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
