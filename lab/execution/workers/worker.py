"""A warm process for the lab's own experiments: ``python -m lab.execution.workers.worker PACKAGE [programs]``.

One JSON message a line. First it says what it runs on (``Host``). Then, again and again, it says that it is ready,
takes a request from standard input, and answers with progress and one answer. It ends when its input does. An experiment finds no standard
input, and what it prints goes to standard error, so that it cannot break the protocol.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import queue
import sys
import threading
import time
from typing import Any, TextIO

from lab import wire
from lab.contract import Cancelled
from lab.execution import perform
from lab.execution.host import Host, gpu_memory_bytes, measure

_REPORT_EVERY_S = 0.05
_IDLE_S = 0.5
"""With nothing to do for so long, what will be needed later is imported."""


class Desk:
    """Where requests come in and answers go out. A thread reads, so that a run hears that it is not wanted any more."""

    def __init__(self, incoming: TextIO, outgoing: TextIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self.requests: queue.Queue[dict[str, Any]] = queue.Queue()
        self._cancelled, self._reported_at = 0, 0.0
        threading.Thread(target=self._read, daemon=True).start()

    def say(self, text: str) -> None:
        self._outgoing.write(text + "\n")
        self._outgoing.flush()

    def report(self, number: int, fraction: float, line: str, part: str = "") -> None:
        """Progress of run ``number``, at most every 50 ms, and every part. Raises Cancelled when the run is not wanted any more."""
        if self._cancelled >= number:
            raise Cancelled
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_EVERY_S:
            self._reported_at = now
            self.say(json.dumps({"kind": "progress", "fraction": fraction, "line": line}))
        if part:
            self.say(part)

    def _read(self) -> None:
        for line in self._incoming:
            message = json.loads(line)
            if message["kind"] == "cancel":
                self._cancelled = message["number"]
            else:
                self.requests.put(message)
        os._exit(0)  # nobody listens any more, whatever runs


def main(package: str, *, programs: bool) -> None:
    incoming, outgoing = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    desk = Desk(incoming, outgoing)
    try:
        host = _settle()
    except (RuntimeError, ValueError) as error:
        desk.say(json.dumps({"kind": "failed", "reason": str(error)[:500]}))
        raise
    desk.say(json.dumps({"kind": "host", **wire.encode(host)}))
    if programs:  # an import that a time limit interrupts halfway stays broken
        _import_late_modules()
    while True:
        desk.say('{"kind":"ready"}')
        request = _next_request(desk)
        report = functools.partial(desk.report, request["number"])
        desk.say(perform.answer(request["experiment"], request["params"], report, package=package))
        if host.cuda:
            _leave_when_device_is_lost()


def _next_request(desk: Desk) -> dict[str, Any]:
    try:
        return desk.requests.get(timeout=_IDLE_S)
    except queue.Empty:
        _import_late_modules()
        return desk.requests.get()


def _import_late_modules() -> None:
    """What torch.optim and torch.func import on first use, which takes seconds."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("torch._dynamo")


def _settle() -> Host:
    """Threads and memory as agreed: one thread a worker on the CPU, where there are several; a share of the GPU."""
    import torch

    if not torch.cuda.is_available():
        torch.set_num_threads(1)
        return measure()
    if limit_bytes := gpu_memory_bytes():
        total_bytes = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(limit_bytes / total_bytes, 1.0))
    return measure()


def _leave_when_device_is_lost() -> None:
    """After a device-side assert every call fails until the process ends: end it; the next run gets another."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"the CUDA context is lost: {error}", file=sys.stderr)  # noqa: T201 - for the operator
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], programs="programs" in sys.argv[2:])
