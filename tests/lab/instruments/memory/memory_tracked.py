"""Run a training under the track, and remember the event after each part of a step."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import torch

from lab.instruments.memory.timeline import Reading, read
from lab.instruments.memory.tracker import MemoryTrack
from lab.torch_private import FakeMode
from lab.workloads import models
from lab.workloads.checkpointing import under_checkpoint
from lab.workloads.training_step import MicroBatches, Recipe, Training, Watch


@dataclass
class Marks(Watch):
    """Events after which a part of a step was over."""

    track: MemoryTrack
    after: dict[str, list[int]] = field(default_factory=dict)

    def step(self, number):
        self.track.step = number

    @contextlib.contextmanager
    def phase(self, name):
        with self.track.phase(name):
            yield
        self.after.setdefault(name, []).append(len(self.track.ledger.events) - 1)


@dataclass
class Tracked:
    track: MemoryTrack
    training: Training
    marks: Marks
    reading: Reading

    def at(self, phase: str, number: int = 0) -> dict[str, int]:
        """Bytes by category after a part of the step, zeros left out."""
        return {k: v for k, v in self.reading.categories(self.marks.after[phase][number]).items() if v}


def built(
    model: str,
    *,
    layers: int = 2,
    width: int = 64,
    batch: int = 4,
    seq: int = 16,
    every: int = 0,
    reentrant: bool = False,
    chunks: int = 1,
) -> MicroBatches:
    torch.manual_seed(0)
    task = models.build(model, layers=layers, width=width, batch=batch, seq=seq)
    if every:
        under_checkpoint(task.model, "every", every, reentrant)
    (x,), y = task.inputs, task.target
    losses = [
        lambda a=a, b=b: task.criterion(task.model(a), b) for a, b in zip(x.chunk(chunks), y.chunk(chunks), strict=True)
    ]
    return MicroBatches(task.model, {"x": x, "y": y}, losses)


def tracked(
    model: str,
    recipe: Recipe,
    *,
    steps: int = 1,
    fake: bool = False,
    cap_bytes: int | None = None,
    for_allocator: bool = False,
    **size: Any,
) -> Tracked:
    with FakeMode() if fake else contextlib.nullcontext():
        task = built(model, **size)
        training = Training(task, recipe)
        track = MemoryTrack(
            {"": task.model}, training.optimizer, task.inputs, cap_bytes=cap_bytes, for_allocator=for_allocator
        )
        marks = Marks(track)
        with track:
            training.run(steps, marks)
    return Tracked(track, training, marks, read(track))
