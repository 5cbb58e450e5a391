"""The text of a program, checked for what can be said clearly before it runs.

The kernel is the wall around a program, not this module. What is refused here is refused because a plain sentence helps
more than a PermissionError would.
"""

from __future__ import annotations

import ast
import builtins
import math
import os
import traceback
from typing import Any

import torch

from lab.program.lines import FILE

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

_LINES, _NESTING = 400, 100


class Refused(Exception):  # noqa: N818 - the visitor reads the name
    """The program asks for something that a typed program does not get."""


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


def syntax_message(error: SyntaxError, source: str) -> str:
    """What is wrong, with the line and a caret under the place."""
    if error.text is None and error.lineno:  # found by the compiler, which looks for the line in a file
        error.text = source.splitlines()[error.lineno - 1]
    lines = traceback.format_exception_only(error)[1:]
    excerpt = "".join(lines[:-1]).rstrip("\n")
    return f"{error.msg}\n{excerpt}" if excerpt else str(error.msg)


def namespace() -> dict[str, Any]:
    """The names that a program finds without import."""
    given = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "math": math}
    return {"__name__": "__main__", "__builtins__": _builtins(), **given}


def is_trusted() -> bool:
    """Whether programs run without walls, on the machine of whoever types them: any import, and files."""
    return os.environ.get("LAB_TYPED_CODE") == "trusted"


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


def _builtins() -> dict[str, Any]:
    refused = {
        **({} if is_trusted() else {"open": "a program has no files."}),
        "input": "nobody sits at its keyboard. Write the value into the program.",
        "breakpoint": "there is no debugger here. Use print.",
        "help": "there is no pager here.",
    }
    return {**vars(builtins), **{name: _refusing(name, why) for name, why in refused.items()}}


def _refusing(name: str, why: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refused(f"{name}() is not available: {why}")

    return refuse
