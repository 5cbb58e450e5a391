"""The seccomp filter: a classic BPF program that the kernel runs before every system call of the process.

It sees ``struct seccomp_data``: the call's number at offset 0, the architecture at 4, six arguments of 8 bytes from 16.
"""

from __future__ import annotations

import errno
import os
import platform
import struct

from lab.execution.sealed import syscalls

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_X32 = 0x40000000
_CLONE_THREAD = 0x10000
_TCGETS = 0x5401
_PR_SET_NAME, _PR_GET_NAME, _PR_SET_VMA = 15, 16, 0x53564D41
_F_DUPFD_TO_SETFL = (0, 1, 2, 3, 4)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL. Not F_SETOWN and F_SETSIG, which send signals to other processes."""
_F_DUPFD_CLOEXEC = 1030


def _argument(index: int, *, high: bool = False) -> int:
    return 16 + 8 * index + (4 if high else 0)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _rule(number: int, verdict: int) -> list[bytes]:
    return [_op(_EQUAL, number, 0, 1), _op(_RETURN, verdict)]


def _only_if(number: int, offset: int, values: tuple[int, ...], refusal: int, test: int = _EQUAL) -> list[bytes]:
    """Allow call ``number`` when the word at ``offset`` passes ``test`` with one of ``values``, else refuse it."""
    count = len(values)
    tests = [_op(test, value, count - i, 0) for i, value in enumerate(values)]
    block = [_op(_LOAD, offset), *tests, _op(_RETURN, refusal), _op(_RETURN, _ALLOW)]
    return [_op(_EQUAL, number, 0, len(block)), *block]


def program(*, gpu: bool) -> bytes:
    """The filter for this process: default EPERM."""
    number = syscalls.NUMBERS[platform.machine()]
    eperm = _ERRNO | errno.EPERM
    ops = [
        _op(_LOAD, 4),
        _op(_EQUAL, syscalls.AUDIT_ARCH[platform.machine()], 1, 0),
        _op(_RETURN, _KILL_PROCESS),
        _op(_LOAD, 0),
        *[_op(_AT_LEAST, _X32, 0, 1), _op(_RETURN, _KILL_PROCESS)],
    ]
    for name in syscalls.ALLOWED + (syscalls.ALLOWED_ON_GPU if gpu else []):
        ops += _rule(number[name], _ALLOW)
    for name in syscalls.KILLED:
        ops += _rule(number[name], _KILL_PROCESS)
    # threads, never processes; clone3 hides its flags in memory: with ENOSYS glibc falls back to clone
    ops += _only_if(number["clone"], _argument(0), (_CLONE_THREAD,), eperm, _ANY_BIT)
    ops += _rule(number["clone3"], _ERRNO | errno.ENOSYS)
    # abort() signals itself
    ops += _only_if(number["tgkill"], _argument(0), (os.getpid(),), eperm)
    ops += _only_if(number["prctl"], _argument(0), (_PR_SET_NAME, _PR_GET_NAME, _PR_SET_VMA), eperm)
    ops += _only_if(number["fcntl"], _argument(1), (*_F_DUPFD_TO_SETFL, _F_DUPFD_CLOEXEC), eperm)
    ops += _read_limits_only(number["prlimit64"], eperm)
    if not gpu:  # isatty() asks; nothing here is a terminal
        ops += _only_if(number["ioctl"], _argument(1), (_TCGETS,), _ERRNO | errno.ENOTTY)
    return b"".join([*ops, _op(_RETURN, eperm)])


def _read_limits_only(number: int, refusal: int) -> list[bytes]:
    """prlimit64 with no new limits (third argument a null pointer, both halves) and about this process (first one 0)."""
    words = (_argument(2), _argument(2, high=True), _argument(0))
    tests = []
    for i, offset in enumerate(words):
        tests += [_op(_LOAD, offset), _op(_EQUAL, 0, 0, 2 * (len(words) - i) - 1)]
    block = [*tests, _op(_RETURN, _ALLOW), _op(_RETURN, refusal)]
    return [_op(_EQUAL, number, 0, len(block)), *block]
