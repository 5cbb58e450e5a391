"""Visitors' programs: one confined process each, watched from outside.

Everything that a child says after its program started may be the program's own words, so all of it is checked: length,
time, schema. What it uses is read from the kernel, not from it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from lab import wire
from lab.contract import Limits
from lab.execution import faults, perform
from lab.execution.jobs import Outcome, Progress, Request
from lab.execution.sealed import confine, self_check
from lab.execution.sealed.child import MEMORY_EXHAUSTED
from lab.execution.sealed.children import Child, ZygoteError
from lab.execution.sealed.frames import Incoming, send_frame
from lab.execution.sealed.spares import Spares
from lab.execution.watch import POLL_S, RunWatch

_SLACK_BYTES = 64 << 20
"""Resident memory beyond the limit that is put down to pages of the zygote that the run writes to."""
_THREADS = 64
_READY_S = 20.0
_PROGRESS_BYTES = 4 << 20
_SIGXCPU = 24


class SealedRoute:
    """Runs what visitors type, ``slots`` at once. ``gpu``: with the CUDA driver in reach."""

    def __init__(self, spares: Spares, *, package: str, slots: int, gpu: bool = False) -> None:
        self._spares, self._package, self._gpu = spares, package, gpu
        self.slots = slots
        self.lane = "device" if gpu else "sealed"
        self._checking, self._walls_hold = threading.Lock(), False

    def why_not(self) -> str:
        """Why the walls cannot be trusted here, empty when they hold. Blocks for the check until it was passed once."""
        with self._checking:
            if self._walls_hold:
                return ""
            try:
                why_not = confine.why_not() or self._probe()
            except ZygoteError as error:
                return str(error)
            self._walls_hold = not why_not
        if not why_not:
            self._spares.refill()
        return why_not

    def run(self, request: Request, report: Progress, cancelled: Callable[[], bool]) -> Outcome:
        if why_not := self.why_not():
            return _refused(why_not)
        failure = "its process ended before it could begin"
        for _ in range(2):  # a zygote that dies takes its children with it: not the program's doing, so once more
            try:
                if outcome := self._run_once(request, report, cancelled):
                    return outcome
            except ZygoteError as error:
                failure = str(error)
            finally:
                self._spares.refill()
        return _refused(failure)

    def warm_up(self) -> None:
        self.why_not()

    def tend(self) -> None:
        self._spares.tend()

    def close(self) -> None:
        self._spares.close()

    def _run_once(self, request: Request, report: Progress, cancelled: Callable[[], bool]) -> Outcome | None:
        child = self._spares.take(gpu=self._gpu)
        try:
            return _Watch(child, request, self._package).follow(report, cancelled)
        finally:
            child.close()

    def _probe(self) -> str:
        child = self._spares.take(gpu=self._gpu)
        reached: dict[str, str] = {}
        try:
            _allow(child, Limits())
            send_frame(child.socket, {"kind": "probe"})
            incoming, deadline = Incoming(child.socket, frame_bytes=1 << 12, total_bytes=1 << 16), time.monotonic() + 30
            while time.monotonic() < deadline:
                if text := incoming.next(POLL_S):
                    told = wire.loads(text)
                    if told["kind"] == "failed":
                        return told["reason"]
                    if told["kind"] == "probe":
                        reached[told["name"]] = told["reached"]
        except (EOFError, ConnectionError):
            child.gone.wait(5)
        finally:
            child.close()
        return self_check.verdict(reached, child.exit_code, gpu=self._gpu)


def _refused(why_not: str) -> Outcome:
    return Outcome("refused", fault=faults.walls_missing(why_not), sealed=True)


def _allow(child: Child, limits: Limits) -> None:
    """The first message: what the run may use. Processor time is the second line behind the wall clock."""
    cpu_s = limits.wall_s * (os.cpu_count() or 1) + 1
    send_frame(child.socket, {"memory_bytes": limits.memory_bytes, "cpu_s": cpu_s})


class _Watch(RunWatch):
    """One run in a sealed child, which is killed when it is not wanted: nothing that it says then would be believed."""

    sealed = True

    def __init__(self, child: Child, request: Request, package: str) -> None:
        assert request.limits is not None
        super().__init__(request, package, wall_s=request.limits.wall_s, threads=_THREADS)
        self.child, self.limits = child, request.limits
        total = 2 * perform.ANSWER_BYTES + _PROGRESS_BYTES  # parts may take as much as the answer
        self.incoming = Incoming(child.socket, frame_bytes=perform.ANSWER_BYTES, total_bytes=total)

    def begin(self) -> Outcome | None:
        """Once the walls are up. Time and memory count from here."""
        _allow(self.child, self.limits)
        text = self.incoming.next(_READY_S)
        told = wire.loads(text) if text else {"kind": "failed", "reason": f"not ready after {_READY_S:g} s"}
        if told["kind"] == "failed":
            return _refused(told["reason"])
        self.allowed_bytes = self.child.usage()[0] + self.limits.memory_bytes + _SLACK_BYTES
        request = {"kind": "run", "experiment": self.request.experiment, "params": self.request.data}
        send_frame(self.child.socket, request)
        self.started = time.monotonic()
        return None

    def next_text(self) -> str | None:
        return self.incoming.next(POLL_S)

    def usage(self) -> tuple[int, int]:
        return self.child.usage()

    def give_up(self) -> bool:
        return True

    def kill(self) -> None:
        """The route closes the child, whatever the outcome."""

    def died(self) -> Outcome | None:
        if not self.child.gone.wait(0.5):
            return self.ended("failed", faults.garbled("it hung up before there was a result"))
        code = self.child.exit_code
        if code == -_SIGXCPU:
            return self.ended("limit", faults.time_limit(self.wall_s, program=True))
        if code == MEMORY_EXHAUSTED:
            return self.ended("limit", faults.memory_limit(self.limits.memory_bytes))
        return None if code is None else self.exited(code)
