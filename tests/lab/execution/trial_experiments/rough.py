"""An experiment of the lab's own that can be told to misbehave."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from dataclasses import dataclass

import torch

from lab.contract import Finding, Lesson, Report, check, knob

ACTS = ("answer", "patient", "deaf", "segfault", "exit", "raise", "swallow memory", "print", "parts")


@dataclass(frozen=True)
class Params:
    act: str = knob("answer", choices=ACTS)
    """What it does."""
    size: int = knob(3, low=1, high=1000, unit="elements")
    """Elements of a sum."""
    seconds: float = knob(30.0, low=0.0, high=60.0, unit="s")
    """How long the slow acts take."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Device."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Result:
    total: float
    pid: int
    threads: int


def run(params: Params, report: Report) -> Result:
    match params.act:
        case "patient":
            until = time.monotonic() + params.seconds
            while (left := until - time.monotonic()) > 0:
                report(1 - left / params.seconds, f"{left:.0f} s left")
                time.sleep(0.01)
        case "deaf":
            time.sleep(params.seconds)
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(7)
        case "raise":
            raise ZeroDivisionError("the instrument divides by zero")
        case "swallow memory":
            torch.zeros(1 << 50)
        case "parts":
            for number in range(params.size):
                report(number / params.size, "handing over", Result(float(number), os.getpid(), 0))
                time.sleep(params.seconds)
        case "print":
            sys.stdout.write('{"kind":"answer","state":"done"}\n')
            os.write(1, b'{"kind":"answer"}\n')
    return Result(torch.ones(params.size).sum().item(), os.getpid(), torch.get_num_threads())


def explain(result: Result) -> tuple[Finding, ...]:
    return (Finding(level="fact", title="the sum", text=f"{result.total:g}", evidence={"total": result.total}),)


lessons: tuple[Lesson, ...] = ()


def script(params: Params) -> str:
    return f"import torch\nprint(torch.ones({params.size}).sum().item())"
