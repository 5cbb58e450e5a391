"""A visitor's program: checked for what can be said clearly beforehand, run, and described when it ends early.

The kernel is the wall around a program, not this module. What is refused here is refused because a plain sentence helps
more than a PermissionError would.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import ctypes
import io
import linecache
import math
import os
import random
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from lab.instruments.describing import lines as program_lines
from lab.instruments.describing.values import plain_value

FILE = "<program>"
"""File name of the program in tracebacks and frames."""

IMPORTS = [
    "torch",
    "torchviz",
    "numpy",
    "math",
    "copy",
    "re",
    "collections",
    "dataclasses",
    "functools",
    "itertools",
    "typing",
    "contextlib",
    "warnings",
    "random",
    "time",
    "weakref",
    "gc",
    "cmath",
    "operator",
    "enum",
    "abc",
    "string",
    "statistics",
    "numbers",
    "decimal",
    "fractions",
    "heapq",
    "bisect",
    "textwrap",
    "pprint",
    "__future__",
]
"""Modules that a program may import, submodules included."""

_LINES, _NESTING, _VARIABLES = 400, 100, 1000


class Refused(Exception):  # noqa: N818 - the visitor reads the name
    """The program asks for something that a typed program does not get."""


class TimeLimit(BaseException):
    """Raised inside the program when its time is over. A BaseException, so that ``except Exception`` does not hide it."""


class OutputLimit(BaseException):
    """The program printed more than it may."""


@dataclass(frozen=True)
class Ended:
    """Why a program ended early."""

    type: str
    message: str
    line: int | None


@dataclass
class Ran:
    """What a program left behind. ``namespace`` is live: read tensors from it before it goes."""

    namespace: dict[str, Any]
    ended: Ended | None = None
    echo: str = ""
    """``repr`` of the last line when that is an expression, as in a notebook."""
    printed: str = ""
    warned: list[tuple[str, int | None]] = field(default_factory=list)
    error: BaseException | None = None

    def note_warning(self, message: Warning | str, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        """In place of ``warnings.showwarning``: a warning of torch counts for the line of the program that called it."""
        line = lineno if filename == FILE else program_lines.program_line(FILE)
        warned = (str(message)[:1000], line)
        if warned not in self.warned and len(self.warned) < 50:
            self.warned.append(warned)


def check_source(source: str) -> ast.Module:
    """Parse and check. Raises SyntaxError, or Refused with the line in ``args[1]``."""
    if source.count("\n") >= _LINES:
        raise Refused(f"The program has more than {_LINES} lines.", _LINES)
    try:
        tree = ast.parse(source, FILE)
    except (RecursionError, MemoryError):
        raise Refused("The program is nested too deeply to be read.", None) from None
    except ValueError as error:  # null bytes, lone surrogates
        raise SyntaxError(str(error)) from None
    if _depth(tree) > _NESTING:
        raise Refused(f"The program nests expressions more than {_NESTING} deep.", None)
    for node in ast.walk(tree):
        for name in _imported(node):
            if name.split(".")[0] not in IMPORTS and not is_trusted():
                raise Refused(
                    f"import {name}: a program may import {', '.join(IMPORTS)}.", getattr(node, "lineno", None)
                )
    return tree


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "."] if isinstance(node, ast.ImportFrom) else []


def _depth(tree: ast.AST) -> int:
    deepest, todo = 0, [(tree, 1)]
    while todo:
        node, depth = todo.pop()
        deepest = max(deepest, depth)
        todo.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
    return deepest


def _refusing(name: str, why: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refused(f"{name}() is not available: {why}")

    return refuse


def is_trusted() -> bool:
    """Whether programs run without walls, on the machine of whoever types them: any import, and files."""
    return os.environ.get("LAB_TYPED_CODE") == "trusted"


def _builtins() -> dict[str, Any]:
    refused = {
        **({} if is_trusted() else {"open": "a program has no files."}),
        "input": "nobody sits at its keyboard. Write the value into the program.",
        "breakpoint": "there is no debugger here. Use print.",
        "help": "there is no pager here.",
    }
    return {**vars(builtins), **{name: _refusing(name, why) for name, why in refused.items()}}


def namespace() -> dict[str, Any]:
    """The names that a program finds without import."""
    given = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "math": math}
    return {"__name__": "__main__", "__builtins__": _builtins(), **given}


class _Capture(io.TextIOBase):
    def __init__(self, limit_bytes: int) -> None:
        self.parts: list[str] = []
        self.left = limit_bytes
        self.limit = limit_bytes

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")
        if len(data) > self.left:
            self.parts.append(data[: self.left].decode(errors="ignore"))
            self.left = 0
            raise OutputLimit(f"The program printed more than {self.limit:,} bytes.")
        self.parts.append(text)
        self.left -= len(data)
        return len(text)

    def writable(self) -> bool:
        return True


class _Alarm:
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


@contextlib.contextmanager
def torch_defaults(seed: int, device: str) -> Iterator[None]:
    """Seeded generators and torch's defaults inside; outside, whatever a program changed is put back."""
    before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_anomaly_enabled()
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if device != "cpu":
        torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(before[0])
        torch.set_grad_enabled(before[1])
        torch.autograd.set_detect_anomaly(before[2])


def run_program(source: str, names: dict[str, Any], *, wall_s: float, printed_bytes: int) -> Ran:
    """Run ``source`` in ``names`` (see ``namespace``). Never raises for what the program does; see ``Ran.ended``."""
    ran, output = Ran(names), _Capture(printed_bytes)
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    with warnings.catch_warnings(), contextlib.redirect_stdout(output):
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)  # as Python does: not a library's, only the program's own
        warnings.filterwarnings("always", category=DeprecationWarning, module="__main__")
        warnings.showwarning = ran.note_warning
        with contextlib.redirect_stderr(output):
            try:
                _execute(check_source(source), ran, wall_s)
            except BaseException as error:  # noqa: BLE001 - whatever the program raised is what the visitor is shown
                ran.error, ran.ended = error, _ended(error, wall_s, source)
    ran.printed = "".join(output.parts)
    return ran


def _execute(tree: ast.Module, ran: Ran, wall_s: float) -> None:
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    with _Alarm(wall_s):
        exec(compile(tree, FILE, "exec"), ran.namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), FILE, "eval"), ran.namespace)
            if value is not None:
                ran.echo = repr(value)[:4000]


def _ended(error: BaseException, wall_s: float, source: str) -> Ended:
    if isinstance(error, SyntaxError) and error.filename in (FILE, None):
        return Ended(type(error).__name__, _syntax_message(error, source), error.lineno)
    line = program_line(error.__traceback__)
    if isinstance(error, TimeLimit):
        return Ended("TimeLimit", f"The program ran for more than {wall_s:g} s and was stopped.", line)
    if isinstance(error, Refused) and len(error.args) == 2:
        return Ended("Refused", str(error.args[0]), error.args[1])
    name = "MemoryLimit" if _is_out_of_memory(error) else type(error).__name__
    return Ended(name, message_of(error), line)


def message_of(error: BaseException) -> str:
    """At most 4000 characters of its text. Never raises."""
    try:
        return str(error)[:4000]
    except Exception:  # noqa: BLE001 - an exception class of the program may fail to describe itself
        return "(the exception has no text)"


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _syntax_message(error: SyntaxError, source: str) -> str:
    if error.text is None and error.lineno:  # found by the compiler, which looks for the line in a file
        error.text = source.splitlines()[error.lineno - 1]
    lines = traceback.format_exception_only(error)[1:]
    excerpt = "".join(lines[:-1]).rstrip("\n")
    return f"{error.msg}\n{excerpt}" if excerpt else str(error.msg)


def program_line(trace: types.TracebackType | None) -> int | None:
    """The innermost line of the program in a traceback."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def variables(names: dict[str, Any]) -> dict[str, Any]:
    """Final values of the program's own variables as plain data; modules, functions and classes left out."""
    given = namespace()
    own = (
        (name, value)
        for name, value in list(names.items())
        if type(name) is str
        and not name.startswith("_")
        and not issubclass(type(value), (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type))
        and value is not given.get(name, names)
    )
    return {name: plain_value(value) for name, value in islice(own, _VARIABLES)}
