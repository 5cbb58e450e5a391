"""Calls of a program into torch that pass through a watch on their way; what torch calls on its own behalf does not."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from lab.program.lines import FILE


class Passing:
    """Puts functions in place of others and takes them away again. Nested calls go straight to torch."""

    def __init__(self) -> None:
        self.depth = 0
        """Above 0 inside a call that passes through: what happens then is torch's own doing."""
        self._stack = contextlib.ExitStack()

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """``around(original, *args)`` in place of ``owner.name``; its answer and its errors are the program's."""
        original = owner.__dict__[name]

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return original(*args, **kwargs)
            self.depth += 1
            try:
                return around(original, *args, **kwargs)
            finally:
                self.depth -= 1

        setattr(owner, name, call)
        self._stack.callback(setattr, owner, name, original)

    def at_end(self, act: Callable[..., Any], *args: Any) -> None:
        """Call ``act`` when everything is taken away."""
        self._stack.callback(act, *args)

    def close(self) -> None:
        """Everything is as it was."""
        self._stack.close()


def line_now() -> int:
    """The innermost line of the program on the stack; 0 where there is none."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != FILE:
        frame = frame.f_back
    return frame.f_lineno if frame else 0


def outer_line() -> int:
    """The outermost line of the program on the stack; 0 where there is none."""
    frame: types.FrameType | None = sys._getframe(1)
    line = 0
    while frame is not None:
        line = frame.f_lineno if frame.f_code.co_filename == FILE else line
        frame = frame.f_back
    return line
