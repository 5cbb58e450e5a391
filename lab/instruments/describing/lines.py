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


_OURS = (
    "torch/overrides.py",
    "instruments/graph/program_trace.py",
    "instruments/graph/recorder.py",
    "instruments/describing/lines.py",
    "torch/_tensor.py",
    "torch/autograd/__init__.py",
    "torch_private/__init__.py",
)
_PASSED_THROUGH = (
    "torch/overrides.py",
    "torch/_tensor.py",
    "instruments/graph/program_trace.py",
    "instruments/graph/recorder.py",
)


def called_by(file: str) -> bool:
    """Whether the program itself called the operation, not a module or an optimizer of torch on its behalf."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(_PASSED_THROUGH):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == file


_WRAPPERS = {
    "wrapper",
    "decorate_context",
    "_no_grad_wrapper",
    "_use_grad",
    "_call_impl",
    "_wrapped_call_impl",
    "inner",
    "_fn",
}


def library_call(file: str) -> str:
    """Name of the library function that the program called and that led here; empty when it called torch itself."""
    frame, found = sys._getframe(1), ""
    while frame is not None and frame.f_code.co_filename != file:
        code = frame.f_code
        if not code.co_filename.endswith(_OURS) and code.co_name not in _WRAPPERS:
            found = code.co_name
        frame = frame.f_back
    return "" if frame is None or found in ("__torch_function__",) else found
