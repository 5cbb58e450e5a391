"""The outer end of the zygote: one process to ask for children, and the children.

NOTE: who keeps whom alive.

1. The zygote ends when its control socket closes: with ``close``, or with this process, however that ends.
2. A child ends when the zygote does (PDEATHSIG), and is killed through a pidfd, never through a process id.
3. The zygote tells of each birth before the end of the same child; when the zygote itself dies, every child counts as
   gone with an unknown exit code.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from lab.execution.sealed.frames import CONTROL_BYTES

ROOT = Path(__file__).resolve().parents[3]
_START_S = 120.0
"""Longest import of torch that is waited for, from a cold disk."""


class ZygoteError(RuntimeError):
    """No process for visitors' programs can be made here now. The message says why."""


def usage(pid: int) -> tuple[int, int]:
    """Resident bytes (mapped files do not count) and threads of a process now; zeros when there is none. Linux only."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    fields = dict(line.split(":", 1) for line in status.splitlines())
    kib = sum(int(fields.get(name, "0").split()[0]) for name in ("RssAnon", "RssShmem"))
    return kib * 1024, int(fields.get("Threads", "0"))


class Child:
    """A process for one run."""

    def __init__(self, number: int, outer: socket.socket) -> None:
        self.number, self.socket = number, outer
        self.pid, self._pidfd, self._lock = 0, -1, threading.Lock()
        self.gone = threading.Event()
        self.exit_code: int | None = None
        """Known once ``gone``: negative for a signal, None when nobody saw it end."""
        self._born = threading.Event()

    def kill(self) -> None:
        self._born.wait(5)
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def usage(self) -> tuple[int, int]:
        """Resident bytes of its own and threads, now; zeros after its end."""
        self._born.wait(5)
        return usage(self.pid)

    def close(self) -> None:
        """Kill it if it is alive. Does not wait for its end."""
        self.socket.close()
        self.kill()

    def has_been_born(self, pid: int, pidfd: int) -> None:
        self.pid, self._pidfd = pid, pidfd
        self._born.set()

    def has_ended(self, exit_code: int | None) -> None:
        self.exit_code = exit_code
        with self._lock:
            if self._pidfd >= 0:
                os.close(self._pidfd)
            self._pidfd = -1
        self._born.set()
        self.gone.set()


class Zygote:
    """A zygote process, starting or up or dead."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._children: dict[int, Child] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._settled, self.dead = threading.Event(), threading.Event()
        self.is_up, self.failure = False, ""
        self.started_at, self.crashes = time.monotonic(), 0
        self._control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with inner:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-B",
                    "-m",
                    "lab.execution.sealed.zygote",
                    str(inner.fileno()),
                    json.dumps(config),
                ],
                pass_fds=[inner.fileno()],
                env=clean_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, name="zygote", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_children(self) -> bool:
        return bool(self._children)

    def wait_up(self) -> None:
        """Block until it can make children. Raises ZygoteError."""
        if not self._settled.wait(_START_S):
            self.close()
            raise ZygoteError(f"preparing took more than {_START_S:g} s")
        if self.failure:
            raise ZygoteError(self.failure)

    def make_child(self, *, gpu: bool = False) -> Child:
        """Raises ZygoteError when it is dead."""
        outer, inner = socket.socketpair()
        with inner, self._lock:
            child = Child(next(self._numbers), outer)
            order = json.dumps({"number": child.number, "gpu": gpu}).encode()
            self._children[child.number] = child  # before the order: news of its birth may come at once
            try:
                socket.send_fds(self._control, [order], [inner.fileno()])
            except OSError:
                self._children.pop(child.number, None)
                outer.close()
                raise ZygoteError(self.failure or "the process that prepares programs ended") from None
        return child

    def close(self) -> None:
        self._process.kill()
        self._listener.join(10)

    def _listen(self) -> None:
        while message := self._receive():
            body, fds = message
            match body["kind"]:
                case "up":
                    self.is_up = True
                    self._settled.set()
                case "failed":
                    self.failure = body["reason"]
                case "born":
                    self._children[body["number"]].has_been_born(body["pid"], fds[0])
                case "gone":
                    self._bury(body["number"], body["status"])
        self._end()

    def _receive(self) -> tuple[dict[str, Any], list[int]] | None:
        try:
            message, fds, _, _ = socket.recv_fds(self._control, CONTROL_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return None
        return (json.loads(message), fds) if message else None

    def _bury(self, number: int, exit_code: int | None) -> None:
        with self._lock:
            child = self._children.pop(number, None)
        self.crashes += exit_code == -signal.SIGSEGV
        if child:
            child.has_ended(exit_code)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        with self._lock:
            self._control.close()
            self.failure = self.failure or "the process that prepares programs ended"
        self.is_up = False
        self.dead.set()
        self._settled.set()
        for number in list(self._children):
            self._bury(number, None)


def clean_environment() -> dict[str, str]:
    """From scratch: a program may read the memory of its own process, so no secret may ever be in it."""
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "USER": "lab",
        "LOGNAME": "lab",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        # torch._dynamo makes this folder when it is imported
        "TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir()) / f"lab-inductor-{os.getuid()}"),
        **{name: os.environ[name] for name in ("LD_LIBRARY_PATH", "LAB_PROGRAM_PACKAGES") if name in os.environ},
    }
