"""From a trace to tables, and what the profiler costs a step."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from lab.instruments.profiling.events import read_events
from lab.instruments.profiling.places import NOWHERE
from lab.instruments.profiling.session import OpSession
from lab.instruments.profiling.step_clock import timed, unmarked
from lab.instruments.profiling.tables import group, merge_calls
from lab.instruments.profiling.tree import build_tree
from lab.workloads import models
from lab.workloads.profiled_step import LoadedStep, Loading, Placement
from lab.workloads.training_step import Recipe


def measure() -> Iterator[dict[str, Any]]:
    """Trace to tables at 10,000 and 100,000 events; a profiled against a bare step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield _tables(10_000, rounds=5)
        yield _tables(100_000, rounds=1)
        yield _step()
    finally:
        torch.set_num_threads(threads)


def _tables(events: int, rounds: int) -> dict[str, Any]:
    """``a + 1`` makes five events."""
    ours, theirs, found = [], [], 0
    for _ in range(rounds):
        x = torch.ones(4)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            for _ in range(events // 5):
                x = x + 1
        gc.collect()
        ours.append(_seconds(lambda: _our_tables(profiler)))
        gc.collect()
        theirs.append(_seconds(lambda: (profiler.events(), profiler.key_averages())))
        found = len(profiler.events() or ())
    return {
        "name": f"profile to tables, {events:,} events",
        "ratio": median(theirs) / median(ours),
        "better": "higher",
        "ours": median(ours),
        "theirs": median(theirs),
        "unit": "s",
        "detail": f"{found:,} events; theirs: prof.events() and key_averages(), collector on as a program has it",
    }


def _our_tables(profiler: profile) -> None:
    tree = build_tree(read_events(profiler))
    rows = [row for row, kind in enumerate(tree.events.kind) if kind == "op" and tree.stands_for[row] == row]
    group(merge_calls([(tree, rows, [NOWHERE] * len(tree.parent))]), "name", device=False)


def _step() -> dict[str, Any]:
    torch.manual_seed(0)
    task = models.build("gpt", layers=2, width=128, batch=8, seq=64)
    step = LoadedStep(task, Recipe(optimizer="adam"), Placement(), Loading(8))
    for _ in range(3):
        step(unmarked)
    bare, profiled, events = [], [], 0
    for _ in range(7):
        bare.append(timed(lambda: step(unmarked), "cpu"))
        session = OpSession("cpu")
        with session, record_function("step"):
            profiled.append(timed(lambda: step(record_function), "cpu"))
        events = len(session.events)
    return {
        "name": "profiled against bare step, GPT of two blocks",
        "ratio": min(profiled) / min(bare),
        "better": "lower",
        "ours": min(profiled),
        "theirs": min(bare),
        "unit": "s",
        "detail": f"{events:,} events, shapes and memory on; fastest of seven each, in turn",
    }


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
