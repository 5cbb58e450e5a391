"""One training under the track: real or on fake tensors, under a cap or not."""

from __future__ import annotations

import contextlib
import gc
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from lab.contract import Fault
from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.subject import Subject, build
from lab.experiments.memory_timeline.words import LAST_LOSS, LOSSES
from lab.instruments.memory import unseen as memory_unseen
from lab.instruments.memory.kept import kept
from lab.instruments.memory.saved import saved_bytes, saved_tensors
from lab.instruments.memory.timeline import Reading, owners, peak, read, seen_bytes
from lab.instruments.memory.tracker import BEGIN, END, MemoryTrack, moment
from lab.program import run as program
from lab.program.explain import explain_fault, is_missing_kernel
from lab.program.output import of_the_program
from lab.records.memory import CapHit, Kept, SavedTensor
from lab.records.program import SILENT, Said, Warned
from lab.torch_private import FakeMode, missing
from lab.workloads.training_step import Watch


@dataclass
class Tracked:
    """What one tracked run gave."""

    book: MemoryTrack
    seen: list[int]
    """Most bytes that the dispatcher saw while each operation ran: what a prediction is about."""
    reading: Reading
    seconds: float
    """Of all steps, the instrument included."""
    step_ends: list[int]
    """Event after which each step was over."""
    saved: list[SavedTensor]
    saved_bytes: int
    """Kept for backward at the end of the forward of the step with the peak."""
    kept: list[Kept]
    segments: int
    parameters: int
    frozen: int
    frozen_gradient_bytes: int
    without_gradient: int
    said: Said
    fault: Fault | None

    @property
    def peak_bytes(self) -> int:
        return max(self.reading.totals)

    @property
    def recomputed_ops(self) -> int:
        return sum(operation.phase == "recompute" for operation in self.reading.operations)


@dataclass
class _Opened(Watch):
    """A training inside its track; tells the track where the loop is."""

    book: MemoryTrack
    subject: Subject
    last_step: int
    step_ends: list[int] = field(default_factory=list)
    saved: list[SavedTensor] = field(default_factory=list)
    saved_bytes: dict[int, int] = field(default_factory=dict)
    """By step."""
    kept: list[Kept] = field(default_factory=list)

    def step(self, number: int) -> None:
        self.book.step = number

    def step_done(self) -> None:
        self.step_ends.append(len(self.book.ledger.events) - 1)
        if self.book.step == self.last_step:
            self.kept = kept(self.book, names(self.subject))

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self.book.phase(name)

    def forward_done(self, loss: torch.Tensor) -> None:
        self.saved_bytes[self.book.step] = saved_bytes(loss, self.book)
        if self.book.step == self.last_step:
            self.saved = saved_tensors(loss, self.book)


def names(subject: Subject) -> dict[str, Any]:
    """What the program and the training loop call their things."""
    training = subject.training
    own = {"model": training.task.model} if subject.ran is None else dict(subject.ran.namespace)
    return own | {LOSSES: training.kept, LAST_LOSS: training.loss}


@contextlib.contextmanager
def steady_collector() -> Iterator[None]:
    """Each track collects garbage first. What is alive now need not be looked through every time."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _opened(
    params: Params, fake: bool, cap_bytes: int | None = None, for_allocator: bool = False, blocks: int | None = None
) -> Iterator[_Opened]:
    """Build a training, and track what happens inside the block. For use under ``program.torch_defaults``."""
    with FakeMode() if fake else contextlib.nullcontext():
        subject = build(params, blocks)
        task = subject.training.task
        book = MemoryTrack(
            {"": task.model},
            subject.training.optimizer,
            task.inputs,
            cap_bytes=cap_bytes,
            source=program.FILE if subject.ran else "",
            names=names(subject),
            for_allocator=for_allocator,
        )
        with book:
            yield _Opened(book, subject, params.steps - 1)


def track(params: Params, *, fake: bool, blocks: int | None = None) -> Tracked:
    """Build and train under the track, on the CPU also with the allocator's own events. Faults of a model are in ``fault``.

    ``blocks``: only so many of its equal blocks, in a prediction.

    Raises SubjectError when there is nothing to train.
    """
    with program.torch_defaults(params.seed, params.device):
        if fake or params.device != "cpu" or missing("allocation events"):
            trained = _trained(params, fake, blocks=blocks)
            return _read(params, trained, seen_bytes(trained.opened.book, params.device))
        kept: list[_Trained] = []
        recording = memory_unseen.recorded(lambda: kept.append(_trained(params, fake, for_allocator=True)))
    (trained,) = kept
    seen = seen_bytes(trained.opened.book)
    moved = memory_unseen.add_unseen(trained.opened.book, recording)
    trained.opened.step_ends = [moved[event] for event in trained.opened.step_ends]
    return _read(params, trained, seen)


@dataclass
class _Trained:
    """A training that is over, not read."""

    opened: _Opened
    seconds: float
    warned: tuple[Warned, ...]
    fault: Fault | None


def _trained(params: Params, fake: bool, *, for_allocator: bool = False, blocks: int | None = None) -> _Trained:
    fault = None
    with (
        warnings.catch_warnings(record=True) as caught,
        _opened(params, fake, for_allocator=for_allocator, blocks=blocks) as opened,
    ):
        warnings.simplefilter("always")
        started = time.perf_counter()
        try:
            opened.subject.training.run(params.steps, opened)
        except Exception as error:
            if params.model != "own" and not is_missing_kernel(error):
                raise
            fault = explain_fault(error)
        seconds = time.perf_counter() - started
        if fault:
            opened.step_done()
    warned = tuple(Warned(of_the_program(str(w.message))[:1000], None) for w in caught)
    return _Trained(opened, seconds, warned, fault)


def _read(params: Params, trained: _Trained, seen: list[int]) -> Tracked:
    opened, ran = trained.opened, trained.opened.subject.ran
    parameters = list(opened.subject.training.task.model.parameters())
    said = ran.said if ran else SILENT
    reading = read(opened.book, params.device)
    highest = peak(reading, reading.instants)
    return Tracked(
        opened.book,
        seen,
        reading,
        trained.seconds,
        opened.step_ends,
        opened.saved,
        opened.saved_bytes.get(highest.step, 0),
        opened.kept,
        len(opened.subject.segments.ran),
        sum(p.numel() for p in parameters),
        sum(p.numel() for p in parameters if not p.requires_grad),
        sum(p.grad.nbytes for p in parameters if not p.requires_grad and p.grad is not None),
        sum(p.requires_grad and p.grad is None for p in parameters),
        replace(said, warned=tuple(dict.fromkeys([*said.warned, *trained.warned]))),
        trained.fault,
    )


def bare_peak_bytes(params: Params) -> int:
    """Peak of the same training without the track, from the allocator's own events."""

    def work() -> None:
        training = build(params).training
        gc.collect()
        gc.disable()
        try:
            moment(BEGIN)
            training.run(params.steps)
            moment(END)
        finally:
            gc.enable()

    with program.torch_defaults(params.seed, params.device), warnings.catch_warnings(action="ignore"):
        return memory_unseen.peak_bytes(memory_unseen.recorded(work))


def run_out_of_memory(params: Params, cap_bytes: int, *, fake: bool) -> CapHit | None:
    """Train under a cap; None when everything fits. The exception is kept for a moment, to see what it holds."""
    kept: BaseException | None = None
    with (
        program.torch_defaults(params.seed, params.device),
        warnings.catch_warnings(action="ignore"),
        _opened(params, fake, cap_bytes=cap_bytes) as opened,
    ):
        ledger = opened.book.ledger
        try:
            opened.subject.training.run(params.steps, opened)
        except Exception as error:
            if opened.book.cap_hit is None:
                raise
            kept = error  # what the model made of it, when it caught it
        if opened.book.cap_hit is None:
            return None
        storage, event, alive_bytes = opened.book.cap_hit
        opened.subject.training.loss = None  # what a handler would do first
        gc.collect()
        held_bytes = ledger.live_bytes
        del kept
        gc.collect()
        after_bytes = ledger.live_bytes
    reading = read(opened.book, params.device)
    return CapHit(
        cap_bytes,
        storage.bytes,
        alive_bytes,
        storage.op,
        storage.op_name,
        storage.phase,
        storage.module,
        storage.step,
        storage.line,
        str(list(storage.shape)),
        storage.dtype,
        reading.categories(event - 1),
        owners(reading, event - 1),
        held_bytes - after_bytes,
        after_bytes,
    )
