"""Do the walls hold? A few raw system calls from inside, each of which must be refused.

Run before the first visitor's program. If a single call gets through, programs stay off: a wall that is believed in
and not there is worse than none.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

Tell = Callable[[str, str], None]
"""Name of the probe, and what it reached: empty when it was refused."""


def _read_file() -> str:
    return f"read {len(Path('/etc/passwd').read_bytes()):,} bytes of a file"


def _read_environment() -> str:
    return f"read {len(Path(f'/proc/{os.getppid()}/environ').read_bytes()):,} bytes of the parent's environment"


def _write_file() -> str:
    path = f"/tmp/lab-self-check-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    Path(path).unlink()
    return "wrote a file"


def _stat() -> str:
    return f"saw / (inode {Path('/').stat().st_ino})"


def _open_socket() -> str:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    return "opened a socket"


def _fork() -> str:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "made a process"


def _signal_parent() -> str:
    os.kill(os.getppid(), 0)
    return "may signal its parent"


def _raise_limits() -> str:
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))
    except ValueError as error:  # how the module says EPERM
        raise PermissionError from error
    return "set its own limits"


_PROBES: dict[str, Callable[[], str]] = {
    "read": _read_file,
    "environment": _read_environment,
    "write": _write_file,
    "stat": _stat,
    "socket": _open_socket,
    "fork": _fork,
    "signal": _signal_parent,
    "limits": _raise_limits,
}
NAMES = (*_PROBES, "exec")
OPEN_ON_GPU = {"stat"}
"""With the CUDA driver in reach, paths are Landlock's business, and Landlock does not hide that a file exists."""


def probe(tell: Tell) -> None:
    """Try everything, from inside. Tells of each probe; the last one, exec, must end the process by SIGSYS."""
    for name, attempt in _PROBES.items():
        try:
            tell(name, attempt())
        except PermissionError:
            tell(name, "")
    os.execv(sys.executable, [sys.executable, "-c", ""])


def verdict(reached: dict[str, str], exit_code: int | None, *, gpu: bool = False) -> str:
    """What does not hold, as a sentence; empty when everything does.

    ``reached``: what each probe told. ``exit_code``: of the process, negative for a signal.
    """
    missing = [name for name in _PROBES if name not in reached]
    if missing:
        return f"the check ended before {missing[0]} was tried (exit code {exit_code})"
    open_ = [text for name, text in reached.items() if text and not (gpu and name in OPEN_ON_GPU)]
    if open_:
        return f"a contained process {', '.join(open_)}"
    if exit_code != -31:  # SIGSYS
        return f"a contained process may start programs (exit code {exit_code})"
    return ""
