"""The program as a file of its own: its name, and its lines in tracebacks."""

from __future__ import annotations

import ast
import functools
import linecache
import types

FILE = "<program>"
"""File name of the program in tracebacks and frames."""


def remember(source: str) -> None:
    """Let tracebacks, ``inspect.getsource`` and ``assigned_line`` find the text of the program."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)


def program_tree() -> ast.Module:
    """The running program, parsed. The same object for the same text."""
    return _parsed("".join(linecache.getlines(FILE)))


@functools.lru_cache(1)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source, FILE)


def program_line(trace: types.TracebackType | None) -> int | None:
    """The innermost line of the program in a traceback."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def assigned_line(name: str) -> int | None:
    """The line of the running program that last gave ``name`` a value at the top level."""
    line = None
    for node in program_tree().body:
        match node:
            case ast.Assign(targets=targets) if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                line = node.lineno
            case ast.FunctionDef(name=defined) if defined == name:
                line = node.lineno
    return line
