"""What the memory track costs, against a bare step and torch's own tracker, and how long a prediction takes."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed._tools.mem_tracker import MemTracker

from benchmarks.turns import in_turns, line, seconds_of
from lab.experiments.memory_timeline.measure import prediction_of, run
from lab.experiments.memory_timeline.schema import Params
from lab.instruments.memory.tracker import MemoryTrack
from lab.workloads import models
from lab.workloads.training_step import MicroBatches, Recipe, Training


def measure() -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    bare, tracked, others, operations = _steps()
    for work in (bare, tracked, others):
        work()
    ours_s, bare_s = in_turns(tracked, bare, rounds=7)
    each_us = 1e6 * (ours_s - bare_s) / operations
    detail = f"GPT of 4 blocks, AdamW, {operations} operations; the track adds {each_us:.1f} µs to each"
    yield line("tracked step against a bare one", ours_s, bare_s, detail, better="lower")
    ours_s, theirs_s = in_turns(tracked, others, rounds=5)
    yield line("memory track against torch's MemTracker", ours_s, theirs_s, "the same step; both with categories")
    yield _first_part()
    yield _prediction()
    gc.unfreeze()


def _steps() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any], int]:
    torch.manual_seed(0)
    made = models.build("gpt", layers=4, width=128, batch=8, seq=64)
    task = MicroBatches(made.model, {"x": made.inputs[0], "target": made.target}, [made.loss])
    training = Training(task, Recipe())
    training.run(1)
    count = []

    def tracked() -> None:
        with MemoryTrack({"": made.model}, training.optimizer, task.inputs) as track:
            training.run(1)
        count.append(len(track.operations))

    def others() -> None:
        theirs = MemTracker()
        theirs.track_external(made.model, training.optimizer)
        with theirs:
            training.run(1)

    tracked()
    return lambda: training.run(1), tracked, others, count[0]


class _EnoughError(Exception):
    """The part is there."""


def _first_part() -> dict[str, Any]:
    """From the click to the timeline on the page, against the same two steps built and run bare."""

    def ours() -> None:
        def report(fraction: float, line: str, part: Any = None) -> None:
            if part is not None and part.timeline.index:
                raise _EnoughError

        with contextlib.suppress(_EnoughError):
            run(Params(), report)

    def theirs() -> None:
        made = models.build("gpt", layers=2, width=128, batch=8, seq=64)
        Training(MicroBatches(made.model, {}, [made.loss]), Recipe()).run(2)

    ours()
    theirs()
    ours_s, theirs_s = in_turns(ours, theirs, rounds=7)
    detail = "the default page until its timeline is handed over; theirs builds the model and trains it for the same two steps"
    return line("click to timeline", ours_s, theirs_s, detail, better="lower")


def _prediction() -> dict[str, Any]:
    """6.5 billion parameters against one measured step of a model with 1/8000 of them."""
    large = Params(layers=32, width=4096, batch=1, seq=2048, optimizer_impl="fused", steps=1)
    prediction_of(Params(steps=1))
    ours_s = seconds_of(lambda: prediction_of(large))
    peak = prediction_of(large).peak_bytes
    made = models.build("gpt", layers=4, width=128, batch=8, seq=64)
    training = Training(MicroBatches(made.model, {}, [made.loss]), Recipe())
    training.run(1)
    theirs_s = seconds_of(lambda: training.run(1))
    detail = f"one step of 6.5 billion parameters predicted, peak {peak:,} B; theirs is a real step of 0.9 million"
    return line("prediction for 7 B parameters", ours_s, theirs_s, detail, better="lower")
