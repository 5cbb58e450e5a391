"""What comes out of a program, within limits: printed text, warnings, and the end of its time."""

from __future__ import annotations

import contextlib
import ctypes
import io
import re
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from lab.instruments.describing import lines as stack
from lab.program.lines import FILE
from lab.records.program import Said, Warned

_TEXT, _WARNINGS = 1000, 50


class TimeLimit(BaseException):
    """Raised inside the program when its time is over. A BaseException, so that ``except Exception`` does not hide it."""


class OutputLimit(BaseException):
    """The program printed more than it may."""


class Output(io.TextIOBase):
    """Standard output and standard error of a program; ``recording`` keeps its warnings as well."""

    def __init__(self, limit_bytes: int) -> None:
        self.parts: list[str] = []
        self.left = limit_bytes
        self.limit = limit_bytes
        self.warned: list[Warned] = []
        self._ends_program = True

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")
        if len(data) > self.left:
            self.parts.append(data[: self.left].decode(errors="ignore"))
            self.left = 0
            if not self._ends_program:
                return len(text)
            raise OutputLimit(f"The program printed more than {self.limit:,} bytes.")
        self.parts.append(text)
        self.left -= len(data)
        return len(text)

    def writable(self) -> bool:
        return True

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Whatever is printed or warned of inside comes here."""
        with warnings.catch_warnings(), contextlib.redirect_stdout(self), contextlib.redirect_stderr(self):
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", DeprecationWarning)  # as Python does: not a library's, only the program's
            warnings.filterwarnings("always", category=DeprecationWarning, module="__main__")
            warnings.showwarning = self._note_warning
            yield

    @contextlib.contextmanager
    def printing(self) -> Iterator[None]:
        """After the program: what is printed inside comes here as long as there is room."""
        self._ends_program = False
        with contextlib.redirect_stdout(self), contextlib.redirect_stderr(self):
            yield

    def said(self, echo: str = "") -> Said:
        return Said(printed="".join(self.parts), echo=echo, warned=tuple(self.warned))

    def _note_warning(self, message: Warning | str, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        """In place of ``warnings.showwarning``: a warning of torch counts for the line of the program that called it."""
        line = lineno if filename == FILE else stack.program_line(FILE)
        warned = Warned(of_the_program(str(message))[:_TEXT], line)
        if warned not in self.warned and len(self.warned) < _WARNINGS:
            self.warned.append(warned)


_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line \d+(?:, in .*)?\n(?:    .*\n?)*', re.MULTILINE)
_TRIGGERED = re.compile(r"\s*\(Triggered internally at [^)]*\)")


def of_the_program(text: str) -> str:
    """``text`` of a warning without frames that are not the program's and without places in torch's own sources."""
    own = _FRAME.sub(lambda frame: frame[0] if frame["file"] == FILE else "", text)
    return _TRIGGERED.sub("", own)


class Alarm:
    """Raises TimeLimit in the current thread at its next bytecode once ``seconds`` are over."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.target, self.lock, self.armed = seconds, threading.get_ident(), threading.Lock(), True
        self.timer = threading.Timer(seconds, self._ring)
        self.timer.daemon = True

    def _ring(self) -> None:
        with self.lock:
            if self.armed:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.target), ctypes.py_object(TimeLimit))

    def __enter__(self) -> None:
        self.timer.start()

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.armed = False
        self.timer.cancel()
