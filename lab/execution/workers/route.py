"""The lab's own experiments: warm worker processes, cancelled politely first, replaced when they die."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable

from lab import wire
from lab.contract import Fault
from lab.execution import faults, perform
from lab.execution.host import Host
from lab.execution.jobs import Outcome, Progress, Request, State, progress
from lab.execution.sealed.children import usage
from lab.execution.workers.process import Worker, WorkerError

_POLL_S = 0.05
_POLITE_S = 2.0
"""Time that a run has to notice that it is not wanted, before its process is killed."""


class WorkerRoute:
    """Runs the lab's own experiments: as many at once as ``workers`` says on the CPU, one at a time where there is CUDA.

    ``single_use``: a process runs one request and ends, and the next one is started ahead; for programs without walls.
    """

    def __init__(
        self, *, package: str, lane: str, workers: int, wall_s: float, idle_s: float = 600.0, single_use: bool = False
    ) -> None:
        self.lane = lane
        self._package, self._workers, self._wall_s, self._idle_s = package, workers, wall_s, idle_s
        self._single_use = single_use
        self._lock, self._first = threading.Lock(), threading.Lock()
        self._host: Host | None = None
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._closed = False

    @property
    def slots(self) -> int:
        """One until the first worker has said whether there is a CUDA device."""
        return self._workers if self._host and not self._host.cuda else 1

    def host(self) -> Host:
        """What measurements run on. Blocks until the first worker has said so. Raises WorkerError."""
        with self._first:
            if self._host is None:
                worker = self._start()
                try:
                    self._host = worker.wait_host()
                except WorkerError:
                    self._drop(worker)
                    raise
                self._give_back(worker)
            return self._host

    def run(self, request: Request, report: Progress, cancelled: Callable[[], bool]) -> Outcome:
        try:
            self.host()
            worker = self._take()
        except WorkerError as error:
            return Outcome("failed", fault=faults.not_started(str(error)))
        outcome = _Turn(worker, request, self._package, self._wall_s).follow(report, cancelled)
        if self._single_use:
            self._drop(worker)
            with contextlib.suppress(WorkerError):  # closing
                self._give_back(self._start())
        elif worker.alive:
            self._give_back(worker)
        else:
            self._drop(worker)
        return outcome

    def warm_up(self) -> None:
        self.host()

    def tend(self) -> None:
        """A worker with a CUDA context keeps GPU memory from others: end it when nobody has asked for a while."""
        if self._host is None or not self._host.cuda:
            return
        with self._lock:
            tired = [w for w in self._idle if time.monotonic() - w.idle_since > self._idle_s]
            self._idle = [w for w in self._idle if w not in tired]
        for worker in tired:
            self._drop(worker)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            workers = list(self._all)
        for worker in workers:
            self._drop(worker)

    def _start(self) -> Worker:
        with self._lock:
            if self._closed:
                raise WorkerError("the lab is closing")
            worker = Worker(self._package, programs=self._single_use)
            self._all.add(worker)
            return worker

    def _take(self) -> Worker:
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            worker = worker or self._start()
            try:
                worker.wait_host()
            except WorkerError:
                self._drop(worker)
                raise
            if worker.is_ready():
                return worker
            self._drop(worker)

    def _give_back(self, worker: Worker) -> None:
        worker.idle_since = time.monotonic()
        with self._lock:
            self._idle.append(worker)

    def _drop(self, worker: Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.end()


class _Turn:
    """One run from its request to its end."""

    def __init__(self, worker: Worker, request: Request, package: str, wall_s: float) -> None:
        self.worker, self.request = worker, request
        self.result_type = perform.types_of(perform.find(request.experiment, package))[1]
        self.wall_s = request.limits.wall_s if request.limits else wall_s
        self.started = time.monotonic()
        self.polite_until = float("inf")
        self.allowed_bytes = 0
        self.standing = (0.0, "")

    def follow(self, report: Progress, cancelled: Callable[[], bool]) -> Outcome:
        try:
            number = self.worker.ask(self.request)
            if self.request.limits and sys.platform == "linux":
                self.allowed_bytes = usage(self.worker.pid)[0] + self.request.limits.memory_bytes
            outcome = None
            while outcome is None:
                if cancelled() and self.polite_until == float("inf"):
                    self.worker.say({"kind": "cancel", "number": number})
                    self.polite_until = time.monotonic() + _POLITE_S
                outcome = self._listen(report) or self._over_limit()
            return outcome
        except BrokenPipeError:
            return self._died()
        except perform.AnswerTooLargeError as error:
            return self._ended("limit", faults.output_limit(str(error)))
        except (perform.AnswerError, wire.WireError) as error:
            return self._ended("failed", faults.garbled(str(error)))

    def _listen(self, report: Progress) -> Outcome | None:
        try:
            text = self.worker.messages.get(timeout=_POLL_S)
        except queue.Empty:
            return None
        if text is None:
            return self._died()
        if text.startswith('{"kind":"answer"'):
            return perform.read_answer(self.result_type, text, sealed=False)
        if text.startswith('{"kind":"part"'):
            report(*self.standing, perform.read_part(self.result_type, text, sealed=False))
            return None
        message = wire.loads(text)
        self.standing = progress(message["fraction"], message["line"])
        report(*self.standing)
        return None

    def _over_limit(self) -> Outcome | None:
        now, limits = time.monotonic(), self.request.limits
        if now > self.polite_until:
            return self._killed("cancelled", faults.cancelled())
        if now - self.started > self.wall_s:
            return self._killed("limit", faults.time_limit(self.wall_s, program=limits is not None))
        if limits and self.allowed_bytes and usage(self.worker.pid)[0] > self.allowed_bytes:
            return self._killed("limit", faults.memory_limit(limits.memory_bytes))
        return None

    def _killed(self, state: State, fault: Fault) -> Outcome:
        self.worker.end()
        return self._ended(state, fault)

    def _died(self) -> Outcome:
        code, program = self.worker.end(wait_s=1.0), self.request.limits is not None
        if code >= 0:
            return self._ended("failed", faults.vanished(code, program=program))
        fault = faults.killed(-code, program=program, memory_bytes=None)
        return self._ended(faults.state_of(fault), fault)

    def _ended(self, state: State, fault: Fault) -> Outcome:
        return Outcome(state, fault=fault, seconds=time.monotonic() - self.started)
