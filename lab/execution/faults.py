"""The sentences for runs that end without a result: what happened, what it means, what to do."""

from __future__ import annotations

import signal
from typing import Literal

from lab.contract import Fault

_SIGNALS = {
    "SIGSEGV": "It touched memory that is not its own (a segmentation fault). PyTorch does not check everything: indices "
    "out of range, sparse tensors with wrong indices and some linear algebra on NaN end like this.",
    "SIGBUS": "It touched memory that does not exist (a bus error).",
    "SIGABRT": "A check inside PyTorch's C++ code failed and ended the process (abort).",
    "SIGFPE": "It divided an integer by zero in native code.",
    "SIGILL": "It ran an instruction that this processor does not have.",
}


def time_limit(wall_s: float, *, program: bool) -> Fault:
    if program:
        return Fault(
            "TimeLimit",
            f"The program was still running after {wall_s:g} s and was ended.",
            explanation="Each run gets the same time, so that one endless loop does not hold up everybody else.",
            repair="Look for a loop that never ends, run fewer steps or use smaller tensors.",
        )
    return Fault(
        "TimeLimit",
        f"The measurement was still running after {wall_s:g} s and was ended.",
        explanation="It takes longer on this machine than a visitor can be asked to wait.",
        repair="Choose smaller settings and run again.",
    )


def memory_limit(memory_bytes: int | None) -> Fault:
    allowed = f"more than {memory_bytes >> 20:,} MiB" if memory_bytes else "more than it can get here"
    return Fault(
        "MemoryLimit",
        f"The run used {allowed} of memory and was ended.",
        explanation="Each run has a fixed amount of memory. Shared and Python memory count as well as tensors.",
        repair="Use smaller tensors, or keep fewer of them alive at once.",
    )


def output_limit(what: str) -> Fault:
    return Fault(
        "OutputLimit",
        what,
        explanation="A result this large cannot be drawn.",
        repair="Run fewer operations, or print and keep less.",
    )


def killed(signum: int, *, program: bool, memory_bytes: int | None) -> Fault:
    """For a process that signal ``signum`` ended without our asking."""
    name = signal.Signals(signum).name if signum in set(signal.Signals) else f"signal {signum}"
    if name == "SIGKILL":
        return memory_limit(memory_bytes)
    if name == "SIGSYS":
        return refused(
            "The program asked the operating system for something that programs here may not do.",
            "Starting programs, tracing processes and changing the system are closed. Use PyTorch and plain Python.",
        )
    who = "program" if program else "measurement"
    return Fault(
        "Crashed",
        f"The {who} crashed its process ({name}).",
        explanation=_SIGNALS.get(name, "The process was ended from outside or by native code."),
        repair="The next run starts afresh. Remove lines until it stops crashing to find the one that does it.",
    )


def vanished(status: int, *, program: bool) -> Fault:
    """For a process that exited with ``status`` and without an answer."""
    who = "program" if program else "measurement"
    return Fault(
        "Crashed",
        f"The {who} ended its process (exit status {status}) before there was a result.",
        explanation="os._exit and some native code end a process at once, without a result.",
        repair="The next run starts afresh. Let the program run to its last line.",
    )


def garbled(why: str) -> Fault:
    return Fault(
        "Crashed",
        "The run answered with something that is not a result.",
        explanation=why[:200],
        repair="The next run starts afresh. A program must leave the process that runs it alone.",
    )


def refused(message: str, repair: str) -> Fault:
    return Fault("Refused", message, repair=repair)


def not_available(why: str) -> Fault:
    """For a run that needs something that this release of torch does not have."""
    return Fault(
        "Refused",
        why,
        explanation="The lab reads this through a name that PyTorch does not promise. A self-test of it fails with this "
        "release, so there is no number instead of a wrong one.",
        repair="Other pages are not affected. README names the releases of PyTorch that were tried.",
    )


def walls_missing(why: str) -> Fault:
    return refused(
        f"Programs that you type cannot run here: {why}.",
        "The presets run as they are. On your own machine, start the lab with LAB_TYPED_CODE=trusted to run any program.",
    )


def programs_off() -> Fault:
    return refused(
        "Programs that you type are switched off here.",
        "The presets run as they are. Whoever runs the lab can switch programs on with LAB_TYPED_CODE=sealed.",
    )


def programs_on_cpu_only() -> Fault:
    return refused(
        "Programs that you type run on the CPU here; this one asks for cuda.",
        "Set device to cpu. The presets, unchanged, run on cuda.",
    )


def no_cuda(why: str) -> Fault:
    return refused(f"There is no CUDA device here: {why}.", "Set device to cpu.")


def not_started(why: str) -> Fault:
    return Fault(
        "Crashed",
        f"The measurement could not start: {why}."[:500],
        explanation="The fault is in the lab or its installation, not in your settings.",
        repair="Try again. The operator finds the details in the log.",
    )


def too_many_threads(limit: int) -> Fault:
    return refused(
        f"The program started more than {limit} threads and was ended.", "Let PyTorch do the work in one thread."
    )


def cancelled(message: str = "Cancelled.") -> Fault:
    return Fault("Cancelled", message, repair="Press Run to start again.")


def state_of(fault: Fault) -> Literal["failed", "refused", "limit"]:
    """How a run that ended by ``fault`` ended."""
    if fault.type == "Refused":
        return "refused"
    return "limit" if fault.type in ("TimeLimit", "MemoryLimit", "OutputLimit") else "failed"


def broken(error: BaseException) -> Fault:
    """For a fault of the lab itself."""
    return Fault(
        type(error).__name__,
        f"{error}"[:500] or "(the error has no text)",
        explanation="The fault is in the lab, not in your settings or your program.",
        repair="Try again, or try other settings. The operator finds the details in the log.",
    )
