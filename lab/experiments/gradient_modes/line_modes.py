"""The mode in which each line of a program ran, and the lines that changed it.

Before every line of the program the two switches are read. Where they differ from the line before, that line changed
them: a ``with`` that was entered or left, or a call. At the begin of a function the decorator did it. Nothing of torch
is replaced for this.
"""

from __future__ import annotations

import dis
import inspect
import linecache
import re
import sys
import types
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from lab.records.gradient_modes import Leak, LineBand, Switch

NAMES = re.compile(r"no_grad|inference_mode|enable_grad|set_grad_enabled")
EVENTS, SWITCHES = 100_000, 500
Mode = tuple[bool, bool]
"""(grad enabled, inference mode)."""


def mode_now() -> Mode:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def word(mode: Mode) -> str:
    return "inference" if mode[1] else "grad" if mode[0] else "no_grad"


@dataclass(eq=False)
class _Frame:
    code: types.CodeType
    entered: Mode


class LineModes:
    """Context manager around the program, in this thread."""

    def __init__(self, file: str, step: Any) -> None:
        self.switches: list[Switch] = []
        self.leaks: list[Leak] = []
        self.bands: dict[int, Counter[str]] = {}
        self.idle: set[int] = set()
        """Lines that ran with gradients enabled inside inference mode."""
        self._file, self._step, self._events = file, step, 0
        self._start = self._mode = mode_now()
        self._line = 0
        self._frames: dict[int, _Frame] = {}
        self._opened: list[tuple[int, Mode, Mode]] = []
        """(line, before, after) of switches that are in force, the innermost last."""

    def __enter__(self) -> LineModes:
        self._before = sys.gettrace()
        self._start = self._mode = mode_now()
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)
        now = mode_now()
        self._look(self._line, now, "")
        if now != self._start:
            line = self.switch_line() or self._line
            if not any(leak.line == line and leak.how == "generator" for leak in self.leaks):
                self.leaks.append(Leak(line, word(now), word(self._start), "end", self._line))
        self._frames.clear()

    def switch_line(self) -> int | None:
        """The line that brought the mode in force."""
        return self._opened[-1][0] if self._opened else None

    def records(self) -> tuple[LineBand, ...]:
        return tuple(LineBand(line, tuple(modes), modes.total()) for line, modes in sorted(self.bands.items()))

    def _called(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != self._file or self._events >= EVENTS:
            return None
        now = mode_now()
        known = self._known(frame)
        if known is None:
            if now != self._mode:
                self._look(frame.f_code.co_firstlineno, now, "decorator")
            self._frames[id(frame)] = _Frame(frame.f_code, now)
        else:  # a generator goes on: what it left to its caller is its own again
            known.entered = now
        return self._traced

    def _traced(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        now = mode_now()
        if event == "line":
            self._events += 1
            self._look(self._line, now, "")
            self._line = frame.f_lineno
            self.bands.setdefault(self._line, Counter())[word(now)] += 1
            if now == (True, True):
                self.idle.add(self._line)
            if self._events >= EVENTS:
                frame.f_trace = None
                return None
        elif event == "return":
            self._look(self._line, now, "")
            self._left(frame, now)
        return self._traced

    def _known(self, frame: types.FrameType) -> _Frame | None:
        known = self._frames.get(id(frame))
        return known if known and known.code is frame.f_code else None

    def _left(self, frame: types.FrameType, now: Mode) -> None:
        known, suspended = self._known(frame), _is_suspended(frame)
        if known and now != known.entered and frame.f_code.co_name not in ("<module>", "__enter__"):
            self._leaks(frame, now, known.entered, "generator" if suspended else "function")
        if not suspended:
            self._frames.pop(id(frame), None)

    def _leaks(self, frame: types.FrameType, now: Mode, before: Mode, how: str) -> None:
        line, caller = self.switch_line() or self._line, frame.f_back
        if caller is not None and caller.f_code.co_filename.endswith("contextlib.py"):
            return  # a context manager made from a generator: its caller is meant to run in the mode
        if len(self.leaks) < 20 and not any(leak.line == line and leak.how == how for leak in self.leaks):
            self.leaks.append(Leak(line, word(now), word(before), how, frame.f_lineno, self._step()))

    def _look(self, line: int, now: Mode, how: str) -> None:
        before = self._mode
        if now == before:
            return
        self._mode = now
        named = how == "decorator" or NAMES.search(linecache.getline(self._file, line))
        last = len(self._opened) - 1
        undone = next((i for i in range(last, -1, -1) if self._opened[i][1] == now), None)
        if undone is not None and (not named or (undone == last and self._opened[last][0] == line)):
            del self._opened[undone:]
            how = "end"
        else:
            self._opened.append((line, before, now))
        if len(self.switches) < SWITCHES:
            self.switches.append(Switch(line, word(before), word(now), how or _how(self._file, line), self._step()))


def _how(file: str, line: int) -> str:
    return "with" if linecache.getline(file, line).lstrip().startswith(("with ", "async with ")) else "call"


def _is_suspended(frame: types.FrameType) -> bool:
    """A generator that stands at a yield, not at its end."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR) and at >= 0 and dis.opname[code[at]] == "YIELD_VALUE"
