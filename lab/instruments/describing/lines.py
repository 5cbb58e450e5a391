"""Where in the program something happens, read from the stack."""

from __future__ import annotations

import sys


def program_line(file: str) -> int | None:
    """The innermost line of the program on this thread's stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back
    return None


_PASSED_THROUGH = ("torch/overrides.py", "torch/_tensor.py", "instruments/graph/program_trace.py")


def called_by(file: str) -> bool:
    """Whether the program itself called the operation, not a module or an optimizer of torch on its behalf."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(_PASSED_THROUGH):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == file
