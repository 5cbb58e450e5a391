"""One training under the track: real or on fake tensors, under a cap or not."""

from __future__ import annotations

import contextlib
import gc
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from lab.contract import Fault
from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.subject import Subject, build
from lab.instruments.memory import unseen as memory_unseen
from lab.instruments.memory.saved import saved_tensors
from lab.instruments.memory.timeline import Reading, owners, read
from lab.instruments.memory.tracker import MemoryTrack
from lab.program import run as program
from lab.program.explain import explain_fault, is_missing_kernel
from lab.records.memory import CapHit, SavedTensor
from lab.records.program import SILENT, Said, Warned
from lab.torch_private import FakeMode
from lab.workloads.training_step import Watch


@dataclass
class Tracked:
    """What one tracked run gave."""

    book: MemoryTrack
    reading: Reading
    seconds: float
    """Of all steps, the instrument included."""
    step_ends: list[int]
    """Event after which each step was over."""
    saved: list[SavedTensor]
    segments: int
    parameters: int
    without_gradient: int
    said: Said
    fault: Fault | None

    @property
    def peak_bytes(self) -> int:
        return max(self.reading.totals)

    @property
    def saved_bytes(self) -> int:
        """Of distinct storages that only autograd keeps."""
        return sum({row.storage: row.storage_bytes or 0 for row in self.saved if row.holds == "saved"}.values())

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

    def step(self, number: int) -> None:
        self.book.step = number

    def step_done(self) -> None:
        self.step_ends.append(len(self.book.ledger.events) - 1)

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self.book.phase(name)

    def forward_done(self, loss: torch.Tensor) -> None:
        if self.book.step == self.last_step:
            self.saved = saved_tensors(loss, self.book)


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
def _opened(params: Params, fake: bool, cap_bytes: int | None = None, addresses: bool = False) -> Iterator[_Opened]:
    """Build a training, and track what happens inside the block."""
    with program.torch_defaults(params.seed, params.device), FakeMode() if fake else contextlib.nullcontext():
        subject = build(params)
        task = subject.training.task
        book = MemoryTrack(
            {"": task.model},
            subject.training.optimizer,
            task.inputs,
            cap_bytes=cap_bytes,
            source=program.FILE if subject.ran else "",
            with_addresses=addresses,
        )
        with book:
            yield _Opened(book, subject, params.steps - 1)


def track(params: Params, *, fake: bool, addresses: bool = False) -> Tracked:
    """Build and train under the track. What a visitor's model raises is in ``fault``.

    Raises SubjectError when there is nothing to train.
    """
    fault = None
    with warnings.catch_warnings(record=True) as caught, _opened(params, fake, addresses=addresses) as opened:
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
        parameters = list(opened.subject.training.task.model.parameters())
    said = opened.subject.ran.said if opened.subject.ran else SILENT
    return Tracked(
        opened.book,
        read(opened.book, params.device),
        seconds,
        opened.step_ends,
        opened.saved,
        opened.subject.segments,
        sum(p.numel() for p in parameters),
        sum(p.requires_grad and p.grad is None for p in parameters),
        replace(
            said, warned=tuple(dict.fromkeys([*said.warned, *(Warned(str(w.message)[:1000], None) for w in caught)]))
        ),
        fault,
    )


def track_with_profiler(params: Params) -> tuple[Tracked, dict[int, int]]:
    """The same on the CPU, and by operation what only the allocator saw."""
    kept: list[Tracked] = []

    def work() -> MemoryTrack:
        kept.append(track(params, fake=False, addresses=True))
        return kept[0].book

    book, events = memory_unseen.profiled(work)
    return kept[0], memory_unseen.unseen_by_operation(book, events)


def run_out_of_memory(params: Params, cap_bytes: int, *, fake: bool) -> CapHit | None:
    """Train under a cap; None when everything fits. The exception is kept for a moment, to see what it holds."""
    kept: BaseException | None = None
    with warnings.catch_warnings(action="ignore"), _opened(params, fake, cap_bytes=cap_bytes) as opened:
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
