"""The outer end of a warm worker process."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from typing import Any

from lab import wire
from lab.execution.host import Host
from lab.execution.jobs import Request
from lab.execution.sealed.children import ROOT

_START_S = 180.0
"""Longest start that is waited for, from a cold disk."""


class WorkerError(RuntimeError):
    """A worker could not start. The message says why."""


class Worker:
    """One worker process. Messages wait in ``messages``; None is its end."""

    def __init__(self, package: str, *, programs: bool = False) -> None:
        """``programs``: it will run a visitor's program, whose time must not go into what torch imports on first use."""
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lab.execution.workers.worker", package, *(["programs"] if programs else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, **({"LAB_TYPED_CODE": "trusted"} if programs else {})},
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self.messages: queue.Queue[str | None] = queue.Queue()
        self._number = 0
        self.host: Host | None = None
        self.idle_since = time.monotonic()
        self._listener = threading.Thread(target=self._listen, name="worker", daemon=True)
        self._listener.start()

    def wait_host(self) -> Host:
        """Block until it has said what it runs on. Raises WorkerError."""
        if self.host is None:
            try:
                text = self.messages.get(timeout=_START_S)
            except queue.Empty:
                text = None
            told = wire.loads(text) if text else {"kind": "failed", "reason": "the process ended before it was ready"}
            if told.pop("kind") == "failed":
                raise WorkerError(told["reason"])
            self.host = wire.decode(Host, told)
        return self.host

    def is_ready(self) -> bool:
        """Wait until it can take the next request; False when it ended instead."""
        try:
            return self.messages.get(timeout=_START_S) is not None and self.alive
        except queue.Empty:
            return False

    def ask(self, request: Request) -> int:
        """Send a request; returns its number. Raises BrokenPipeError when it is gone."""
        self._number += 1
        self.say({"kind": "run", "number": self._number, "experiment": request.experiment, "params": request.data})
        return self._number

    def say(self, message: dict[str, Any]) -> None:
        """Raises BrokenPipeError when it is gone."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, wait_s: float = 0.0) -> int:
        """Let it end by itself for ``wait_s``, then kill it. Returns the exit code, negative for a signal."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
        self._process.kill()
        code = self._process.wait()
        self._listener.join(10)
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # what was not sent yet
            self._process.stdin.close()
        self._process.stdout.close()
        return code

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.messages.put(line)
        self.messages.put(None)
