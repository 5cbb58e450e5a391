"""The lab's own experiments: warm worker processes, cancelled politely first, replaced when they die."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable

from lab.execution import faults
from lab.execution.host import Host
from lab.execution.jobs import Outcome, Progress, Request
from lab.execution.sealed.children import usage
from lab.execution.watch import POLL_S, RunWatch
from lab.execution.workers.process import Worker, WorkerError

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
        assert outcome is not None  # a worker begins at once, and its death is told
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


class _Turn(RunWatch):
    """One run in a worker, which is asked to stop before it is killed."""

    def __init__(self, worker: Worker, request: Request, package: str, wall_s: float) -> None:
        super().__init__(request, package, wall_s=request.limits.wall_s if request.limits else wall_s)
        self.worker = worker
        self.number = 0
        self.polite_until: float | None = None

    def begin(self) -> None:
        self.started = time.monotonic()
        self.number = self.worker.ask(self.request)
        if self.request.limits and sys.platform == "linux":
            self.allowed_bytes = self.usage()[0] + self.request.limits.memory_bytes

    def next_text(self) -> str | None:
        try:
            text = self.worker.messages.get(timeout=POLL_S)
        except queue.Empty:
            return None
        if text is None:
            raise EOFError("the worker ended")
        return text

    def usage(self) -> tuple[int, int]:
        return usage(self.worker.pid)

    def give_up(self) -> bool:
        if self.polite_until is None:
            self.worker.say({"kind": "cancel", "number": self.number})
            self.polite_until = time.monotonic() + _POLITE_S
        return time.monotonic() > self.polite_until

    def kill(self) -> None:
        self.worker.end()

    def died(self) -> Outcome:
        return self.exited(self.worker.end(wait_s=1.0))
