"""A visitor's program run with plain ``exec``, the real torch and all of Python: what the walls must hold alone."""

from __future__ import annotations

import contextlib
import io
import math
import mmap  # noqa: F401 - these serve the attacks: they must reach the kernel, not end at an import
import pickle  # noqa: F401
import resource  # noqa: F401
import shutil  # noqa: F401
import signal  # noqa: F401
import socket  # noqa: F401
import subprocess  # noqa: F401
import tempfile  # noqa: F401
import urllib.request  # noqa: F401
from dataclasses import dataclass
from typing import Any

import torch

from lab.contract import Fault, Finding, Lesson, Limits, Report, check, knob


@dataclass(frozen=True)
class Params:
    code: str = knob("print('hello')", program=Limits(wall_s=1.5, memory_bytes=256 << 20), max_bytes=1 << 17)
    """The program."""
    seed: int = knob(0, low=0, high=100)
    """Seed."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Device."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Result:
    printed: str
    fault: Fault | None
    nodes: tuple[int, ...]
    values: Any


def run(params: Params, report: Report) -> Result:
    printed, fault = io.StringIO(), None
    names = {
        "torch": torch,
        "nn": torch.nn,
        "F": torch.nn.functional,
        "math": math,
        "report": report,
        "__name__": "__main__",
    }
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(params.code, "<program>", "exec"), names)
    except BaseException as error:  # noqa: BLE001 - whatever the program raises is its result
        fault = Fault(type(error).__name__, f"{error}"[:500])
    nodes = names.get("nodes", ())
    return Result(printed.getvalue()[:65536], fault, tuple(nodes), names.get("values"))  # type: ignore[arg-type]


def explain(result: Result) -> tuple[Finding, ...]:
    return (
        Finding(level="fact", title="printed", text=result.printed[:80], evidence={"characters": len(result.printed)}),
    )


lessons = (
    Lesson(
        "T1",
        "ours",
        Params(code="import os; print(os.getpid())"),
        "",
        {},
        lambda r: "",
        lambda r: 0.0,
        "",
        "",
        "",
        "",
        "",
    ),
)


def script(params: Params) -> str:
    return params.code
