"""Run the step: first, warm-up, then bare and profiled in turn, then once with marks for modules and lines.

NOTE How the numbers stay clean.
1. Bare and profiled steps take turns, so that a machine that gets slower does so for both.
2. One profiler session a step: a step with very many events ends the profiling early instead of filling the memory.
3. Marks for modules and lines, and the sampling of Python's lines, are in steps of their own, whose times are used for
   nothing else.
4. The collector of Python is off in timed steps: when it runs is chance.
5. Ceilings are measured before and after; the better counts. So is the cost of a call, with every profiled step.
6. On a device every clock is read only after it is idle.
7. All of it runs with the threads that a bare program has.
8. A profiled step that other programs disturbed is run again, up to twice; a bare one is marked and left out of the median.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

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
from lab.experiments.op_profile.trials import try_changes
from lab.instruments.profiling.ceilings import best_of, measure_ceilings
from lab.instruments.profiling.dispatch import measure_dispatch
from lab.instruments.profiling.places import CallMarks
from lab.instruments.profiling.python_time import FrameSampler
from lab.instruments.profiling.session import OpSession
from lab.instruments.profiling.step_clock import Lap, PartClock, disturbed, lap, timed, unmarked
from lab.instruments.profiling.threads import bare_threads
from lab.instruments.profiling.tree import Tree, build_tree
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
_AGAIN = 2
"""Times that a disturbed profiled step is run again."""
_SAMPLED_S, _SAMPLED_EVENTS = 0.25, 20_000
"""Steps are sampled for so long, at least one, while they have no more events than that."""
_OWN_S, _OURS_S = 10.0, 60.0
"""After so many seconds no further step is begun."""


def run(params: Params, report: Report) -> Result:
    """Measure one training step. Faults of a visitor's program do not raise: they are in ``fault``."""
    require("profiler events")
    report(0.0, "building the model")
    with bare_threads():
        return _run(params, report)


def _run(params: Params, report: Report) -> Result:
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
                report(0.7, "one step for modules and lines")
                _mark(params, found.step, measured)
                _sample(params, found.step, measured)
            report(0.75, "what this device can do at best")
            measured.ceilings = best_of(before, measure_ceilings(params.device, _dtype(params)))
            measured.trials = try_changes(params, found, measured, deadline, report)
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
    events, bare = 0, []
    for number in range(params.steps):
        if number and time.monotonic() > deadline:
            measured.cut = f"{number} of {params.steps} steps were measured: the time for this run was over."
            break
        if number and events * (number + 1) / number > EVENTS:
            measured.cut = (
                f"{number} of {params.steps} steps were profiled: one has some {events // number:,} events, and a run keeps "
                f"at most {EVENTS:,}."
            )
            break
        report(0.1 + 0.6 * number / params.steps, f"step {number + 1} of {params.steps}, without and with the profiler")
        for _ in range(BARE):
            bare.append(lap(lambda: step(unmarked), params.device))
            measured.iterations.append(Iteration("bare", None, bare[-1].total_s))
            if bare[-1].total_s > _SLOW_S:
                break
        measured.dispatch.append(measure_dispatch())
        tree, one = _profiled(params, step, bare, deadline)
        parts = profiled_step(tree)
        events += len(tree.events)
        measured.trees.append(tree)
        measured.iterations.append(Iteration("profiled", parts, parts.total_s, disturbed([*bare, one])[-1]))
    marks = iter(disturbed(bare))
    measured.iterations = [replace(i, disturbed=next(marks)) if i.kind == "bare" else i for i in measured.iterations]


def _profiled(params: Params, step: TimedStep, bare: list[Lap], deadline: float) -> tuple[Tree, Lap]:
    """The shortest of up to three tries; the first that nobody disturbed."""
    best: tuple[Tree, Lap] | None = None
    for _ in range(1 + _AGAIN):
        session = OpSession(params.device)
        with session, record_function(ROOT):
            one = lap(lambda: step(record_function), params.device)
        if best is None or one.total_s < best[1].total_s:
            best = build_tree(session.events), one
        if not disturbed([*bare, one])[-1] or time.monotonic() > deadline:
            break
    assert best
    return best


def _sample(params: Params, step: TimedStep, measured: Measured) -> None:
    """Where Python is, in steps whose times are used for nothing else."""
    events = len(measured.trees[0].events)
    session, sampler = OpSession(params.device, memory=False, shapes=False), FrameSampler(FILES)
    started, count = time.monotonic(), 0
    with session:
        while not count or (time.monotonic() - started < _SAMPLED_S and (count + 1) * events < _SAMPLED_EVENTS):
            with sampler.watching(), record_function(ROOT):
                step(record_function)
            count += 1
    measured.sampled = build_tree(session.events), sampler


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
