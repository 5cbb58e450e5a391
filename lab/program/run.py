"""A visitor's program is run, and described when it ends early."""

from __future__ import annotations

import ast
import contextlib
import random
import sys
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from lab.contract import program_knob
from lab.instruments.describing.values import plain_value
from lab.program.explain import NO_PROGRAM, end_of
from lab.program.lines import FILE, program_line, program_tree, remember
from lab.program.output import Alarm, Output, TimeLimit
from lab.program.source import IMPORTS, check_source, namespace, syntax_message
from lab.program.surroundings import as_main, put_back
from lab.program.watch import Seen, Watch
from lab.records.program import Ended, Said

__all__ = [
    "FILE",
    "IMPORTS",
    "Ended",
    "Ran",
    "namespace",
    "program_line",
    "run_program",
    "run_typed",
    "torch_defaults",
    "variables",
]

_VARIABLES = 1000
_measuring: list[contextlib.ExitStack] = []
"""Ends with ``torch_defaults``: until then, what is printed is printed by what the program made."""


@dataclass
class Ran:
    """What a program left behind. ``namespace`` is live: read tensors from it before it goes."""

    namespace: dict[str, Any]
    ended: Ended | None = None
    output: Output = field(default_factory=lambda: Output(0))
    echo: str = ""
    error: BaseException | None = None
    seen: Seen = field(default_factory=Seen)
    """What it trained, for the pages that measure that."""
    value: Any = None
    """Of the last line when that is an expression: it lives until the record is read."""

    @property
    def said(self) -> Said:
        """Up to now: what its model prints while it is measured counts as well."""
        return self.output.said(self.echo)


def run_typed(params: Any, *, share: float, names: dict[str, Any] | None = None) -> Ran:
    """Run the program that ``params`` hold. It may take ``share`` of the wall time of its knob; the rest is the lab's.

    ``names``: its namespace. Where none is given, it is made anew, what the program trains is watched, and there must be one.
    """
    knob = program_knob(type(params))
    assert knob is not None
    assert knob.program is not None
    if names is None and not program_text(getattr(params, knob.name)):
        return Ran(namespace(), Ended("OwnModelError", NO_PROGRAM, None))
    watch = Watch()
    with watch if names is None else contextlib.nullcontext():
        ran = run_program(
            getattr(params, knob.name),
            namespace() if names is None else names,
            wall_s=share * knob.program.wall_s,
            printed_bytes=knob.program.printed_bytes,
        )
    ran.seen = watch.seen
    if _measuring:
        _measuring[-1].enter_context(ran.output.printing())
    return ran


def program_text(source: str) -> str:
    """What of the text is program: empty for nothing but comments."""
    return "\n".join(line for line in source.splitlines() if line.split("#")[0].strip())


def run_program(source: str, names: dict[str, Any], *, wall_s: float, printed_bytes: int) -> Ran:
    """Run ``source`` in ``names`` (see ``namespace``). Never raises for what the program does; see ``Ran.ended``."""
    ran = Ran(names, output=Output(printed_bytes))
    remember(source)
    with ran.output.recording():
        try:
            tree = check_source(source)
            with as_main(names), Alarm(wall_s):
                ran.echo, ran.value = _execute(tree, names)
        except BaseException as error:  # noqa: BLE001 - whatever the program raised is what the visitor is shown
            if not _is_a_good_end(error):
                ran.error, ran.ended = error, _ended(error, wall_s, source)
    return ran


def _execute(tree: ast.Module, names: dict[str, Any]) -> tuple[str, Any]:
    """Run it and return the echo of its last line, with its value."""
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, FILE, "exec"), names)
    if not isinstance(last, ast.Expr):
        return "", None
    value = eval(compile(ast.Expression(last.value), FILE, "eval"), names)
    return "" if value is None else repr(value)[:4000], value


@contextlib.contextmanager
def torch_defaults(seed: int, device: str) -> Iterator[None]:
    """Seeded generators and torch's defaults inside; outside, whatever a program changed is put back."""
    with put_back(), contextlib.ExitStack() as stack:
        _measuring.append(stack)
        stack.callback(_measuring.pop)
        torch.manual_seed(seed)
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)
        if device != "cpu":
            torch.set_default_device(device)
        yield


def _is_a_good_end(error: BaseException) -> bool:
    """``sys.exit(main())`` as the last statement, where main returns nothing or 0."""
    if not isinstance(error, SystemExit) or error.code not in (None, 0):
        return False
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    at = next((line for code, line in frames if code.co_filename == FILE), 0)
    return frames[-1][0].co_filename == FILE and at >= program_tree().body[-1].lineno


def _ended(error: BaseException, wall_s: float, source: str) -> Ended:
    if isinstance(error, SyntaxError) and error.filename in (FILE, None):
        return Ended(type(error).__name__, syntax_message(error, source), error.lineno)
    if isinstance(error, TimeLimit):
        told = f"The program ran for more than {wall_s:g} s and was stopped."
        return Ended("TimeLimit", told, program_line(error.__traceback__))
    return end_of(error)


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
