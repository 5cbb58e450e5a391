"""The walls around one run, built by the process itself just before it runs a stranger's program.

NOTE: the order matters, and nothing can be undone.

1. Everything that needs files, devices or threads comes first: imports, warm-up, a CUDA context.
2. Descriptors: only the job socket stays. Working directory and environment go.
3. oom_score_adj, so that the kernel, short of memory, takes this process and no other. Death of the parent ends it.
4. rlimits: no core, no files, no locked memory; processor time and private memory counted from here.
5. No capabilities (it may be root's process), not dumpable: nobody of the same user looks inside.
6. Landlock: no path, no TCP, no signal to the outside.
7. seccomp, on all threads: an allow-list of calls of which none takes a path, opens a socket or makes a process.

Everything goes through ctypes; no privilege is needed. Importable everywhere, usable on Linux (see ``why_not``).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
from pathlib import Path

from lab.execution.sealed import seccomp, syscalls

LAYERS = ("rlimits", "landlock", "seccomp")
JOB_FD = 3
"""Descriptor of the job socket in a confined process, the only one above standard error."""

_CAPSET, _SECCOMP = 126, 317
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SIGKILL = 9
_CPU_SLACK_S = 2


class ConfineError(OSError):
    """A wall could not be built. The process must not run anybody's program."""


def why_not() -> str:
    """Why this system cannot build the walls, empty when it can."""
    if sys.platform != "linux":
        return f"{platform.system()} has no Landlock and no seccomp; programs are contained on Linux only"
    if platform.machine() not in syscalls.NUMBERS:
        return (
            f"the system calls of {platform.machine()} are not known here, only those of {', '.join(syscalls.NUMBERS)}"
        )
    if _landlock_abi() < 1:
        return f"the kernel ({platform.release()}) has no Landlock; it needs 5.13 or newer with Landlock enabled"
    try:
        _prctl(21)  # PR_GET_SECCOMP
    except ConfineError:
        return f"the kernel ({platform.release()}) is built without seccomp"
    return ""


def leave_with_parent() -> None:
    """End this process when its parent ends."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def keep_only(job_fd: int) -> None:
    """Make ``job_fd`` descriptor 3, send standard streams nowhere, close the rest."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    os.dup2(job_fd, JOB_FD)
    os.closerange(JOB_FD + 1, 1 << 20)


def confine(*, memory_bytes: int, cpu_s: float, gpu: bool = False, layers: tuple[str, ...] = LAYERS) -> None:
    """Build the walls; ``layers`` leaves some out, for tests. Raises ConfineError or OSError when one cannot be built."""
    os.umask(0o077)
    if not gpu:  # the driver's descriptors are open by now
        keep_only(JOB_FD)
    os.chdir("/")
    os.environ.clear()
    with contextlib.suppress(OSError):  # some containers mount /proc read-only
        Path("/proc/self/oom_score_adj").write_text("1000")
    if "rlimits" in layers:
        _limit_resources(memory_bytes, cpu_s, open_files=256 if gpu else 32)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_DUMPABLE, 0)
    _drop_capabilities()
    if "landlock" in layers:
        _landlock(_library_folders() if gpu else [], _device_files() if gpu else [])
    if "seccomp" in layers:
        _seccomp(gpu)


def _limit_resources(memory_bytes: int, cpu_s: float, open_files: int) -> None:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime + cpu_s) + 1
    # RLIMIT_DATA counts private writable mappings only, so address space that CUDA reserves does not count
    data = _mapped_bytes() + memory_bytes
    for kind, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        (resource.RLIMIT_NOFILE, open_files, open_files),
        (resource.RLIMIT_STACK, 8 << 20, 8 << 20),
        (resource.RLIMIT_CPU, cpu, cpu + _CPU_SLACK_S),
        (resource.RLIMIT_DATA, data, data),
    ):
        highest = resource.getrlimit(kind)[1]
        if highest != resource.RLIM_INFINITY:
            soft, hard = min(soft, highest), min(hard, highest)
        resource.setrlimit(kind, (soft, hard))


def _mapped_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise ConfineError(errno.ENOSYS, "/proc/self/status does not say VmData")


def _library_folders() -> list[str]:
    return [sys.base_prefix, sys.prefix, "/usr/lib", "/usr/local/cuda", "/lib", "/lib64"]


def _device_files() -> list[str]:
    """What the CUDA driver writes to: its devices, and the names of its threads."""
    return [*(str(path) for path in Path("/dev").glob("nvidia*")), "/proc/self/task"]


# --- the calls themselves -------------------------------------------------------------------------------------------

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _IOCTL_DEV = 1, 2, 4, 8, 1 << 15
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All file rights that Landlock knows, by the interface version that added some."""


def _landlock(readable: list[str], devices: list[str]) -> None:
    """Deny all files but these, all TCP (version 4), abstract sockets and signals to the outside (version 6)."""
    abi = _landlock_abi()
    known = _FILE_RIGHTS[max(v for v in _FILE_RIGHTS if v <= abi)]
    network, scoped = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    attributes = struct.pack("=QQQ", known, network, scoped)[:size]
    rules = _syscall(_LANDLOCK_CREATE, ctypes.c_char_p(attributes), ctypes.c_size_t(size), ctypes.c_uint(0))
    for path in readable:
        _landlock_path(rules, path, (_READ_FILE | _READ_DIR | _EXECUTE) & known)
    for path in devices:
        _landlock_path(rules, path, (_READ_FILE | _WRITE_FILE | _IOCTL_DEV) & known)
    _syscall(_LANDLOCK_RESTRICT, ctypes.c_int(rules), ctypes.c_uint(0))
    os.close(rules)


def _landlock_path(rules: int, path: str, rights: int) -> None:
    if not Path(path).exists():
        return
    if not Path(path).is_dir():
        rights &= ~_READ_DIR
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = struct.pack("=Qi", rights, fd)
    _syscall(_LANDLOCK_ADD, ctypes.c_int(rules), ctypes.c_int(1), ctypes.c_char_p(rule), ctypes.c_uint(0))
    os.close(fd)


def _landlock_abi() -> int:
    try:
        return _syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except ConfineError:
        return 0


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def _seccomp(gpu: bool) -> None:
    code = seccomp.program(gpu=gpu)
    filter_ = _Filter(len(code) // 8, code)
    mode_filter, all_threads = ctypes.c_uint(1), ctypes.c_uint(1)
    if _syscall(_SECCOMP, mode_filter, all_threads, ctypes.byref(filter_)):
        raise ConfineError(errno.EBUSY, "seccomp: a thread could not be brought under the filter")


def _drop_capabilities() -> None:
    header = struct.pack("=Ii", 0x20080522, 0)  # version 3, this thread
    _syscall(_CAPSET, ctypes.c_char_p(header), ctypes.c_char_p(bytes(24)))


def _prctl(option: int, value: int = 0) -> None:
    _syscall(157, ctypes.c_int(option), *(ctypes.c_ulong(v) for v in (value, 0, 0, 0)))


def _syscall(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise ConfineError(code, f"system call {number}: {os.strerror(code)}")
    return result
