"""One run in another process, from its request to its end: progress, parts, the answer, the limits, every way of ending.

What the process says is checked, whoever it is: length, number, schema. What it uses is read from the kernel. The two
kinds of process (warm workers, sealed children) differ in how they are spoken to, asked to stop, and found dead.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from lab import wire
from lab.contract import Fault
from lab.execution import faults, perform
from lab.execution.jobs import Outcome, Progress, Request, State, progress

POLL_S = 0.05
MESSAGES = 5_000
"""Progress and parts that one run may send."""
MESSAGE_BYTES = 4096
"""Of one message of progress."""


class RunWatch(ABC):
    """Follows one run. ``wall_s``: seconds until it is ended; ``threads``: most that it may have, 0 for any number."""

    sealed = False

    def __init__(self, request: Request, package: str, *, wall_s: float, threads: int = 0) -> None:
        self.request, self.wall_s, self.threads = request, wall_s, threads
        self.result_type = perform.types_of(perform.find(request.experiment, package))[1]
        self.allowed_bytes = self._messages = 0
        self.started = 0.0
        self._standing = (0.0, "")

    @abstractmethod
    def begin(self) -> Outcome | None:
        """Hand over the request, and set ``started`` and ``allowed_bytes`` (0: no limit); an outcome when it cannot begin."""

    @abstractmethod
    def next_text(self) -> str | None:
        """The next message, None when there is none for a moment. Raises EOFError when the process is gone."""

    @abstractmethod
    def usage(self) -> tuple[int, int]:
        """(resident bytes, threads) of the process."""

    @abstractmethod
    def give_up(self) -> bool:
        """The run is not wanted: say so to it; whether it has had its time to stop."""

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def died(self) -> Outcome | None:
        """Why the process is gone; None when that is not the run's doing."""

    def follow(self, report: Progress, cancelled: Callable[[], bool]) -> Outcome | None:
        """The outcome; None when the process ended before the program began, or not by the run's doing."""
        try:
            outcome = self.begin()
            while outcome is None:
                outcome = self._listen(report) or self._over_limit(cancelled)
            return outcome
        except perform.AnswerTooLargeError as error:
            return self.ended("limit", faults.output_limit(str(error)))
        except (perform.AnswerError, wire.WireError) as error:
            return self.ended("failed", faults.garbled(str(error)))
        except (EOFError, ConnectionError, TimeoutError):
            return self.died() if self.started else None

    def _listen(self, report: Progress) -> Outcome | None:
        text = self.next_text()
        if text is None:
            return None
        if text.startswith('{"kind":"answer"'):
            told, elapsed_s = perform.read_answer(self.result_type, text, sealed=self.sealed), self._elapsed_s()
            return told if 0 <= told.seconds <= elapsed_s else replace(told, seconds=elapsed_s)
        self._messages += 1
        if text.startswith('{"kind":"part"') and self._messages <= MESSAGES:
            report(*self._standing, perform.read_part(self.result_type, text, sealed=self.sealed))
            return None
        message = wire.loads(text) if len(text) < MESSAGE_BYTES else None
        if not isinstance(message, dict) or message.get("kind") != "progress" or self._messages > MESSAGES:
            raise perform.AnswerError(f"neither progress nor a result: {text:.80}")
        self._standing = progress(message.get("fraction"), message.get("line"))
        report(*self._standing)
        return None

    def _over_limit(self, cancelled: Callable[[], bool]) -> Outcome | None:
        limits = self.request.limits
        if cancelled() and self.give_up():
            return self._killed("cancelled", faults.cancelled())
        if self._elapsed_s() > self.wall_s:
            return self._killed("limit", faults.time_limit(self.wall_s, program=limits is not None))
        if limits is None or not self.allowed_bytes:
            return None
        resident_bytes, threads = self.usage()
        if resident_bytes > self.allowed_bytes:
            return self._killed("limit", faults.memory_limit(limits.memory_bytes))
        if self.threads and threads > self.threads:
            return self._killed("refused", faults.too_many_threads(self.threads))
        return None

    def exited(self, code: int) -> Outcome:
        """The process is gone with ``code``, negative for a signal."""
        program = self.request.limits is not None
        if code >= 0:
            return self.ended("failed", faults.vanished(code, program=program))
        fault = faults.killed(-code, program=program, memory_bytes=None)
        return self.ended(faults.state_of(fault), fault)

    def ended(self, state: State, fault: Fault) -> Outcome:
        return Outcome(state, fault=fault, seconds=self._elapsed_s(), sealed=self.sealed)

    def _killed(self, state: State, fault: Fault) -> Outcome:
        self.kill()
        return self.ended(state, fault)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self.started
