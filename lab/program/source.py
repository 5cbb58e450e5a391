"""The text of a program, checked for what can be said clearly before it runs.

The kernel is the wall around a program, not this module. What is refused here is refused because a plain sentence helps
more than a PermissionError would.
"""

from __future__ import annotations

import ast
import builtins
import math
import os
import sys
import traceback
from typing import Any

import torch

from lab.program.lines import FILE

_STANDARD = """
__future__ abc argparse array ast asyncio base64 binascii bisect calendar cmath codecs collections colorsys concurrent contextlib
copy copyreg csv dataclasses datetime decimal difflib dis enum errno fnmatch fractions functools gc getpass glob
graphlib hashlib heapq hmac html importlib inspect io itertools json keyword linecache locale logging math multiprocessing
numbers operator os pathlib pickle platform pprint queue random re reprlib secrets shutil signal stat statistics string
struct sys tempfile textwrap threading time timeit token tokenize traceback types typing unicodedata unittest
uuid warnings weakref zlib
"""
STANDARD = tuple(_STANDARD.split())
"""Modules of Python that a program may import, submodules included; loaded before the walls go up."""
_NAMED = os.environ.get("LAB_PROGRAM_PACKAGES", "").replace(",", " ").split()
PACKAGES = tuple(dict.fromkeys(name.split(".")[0] for name in _NAMED))
"""What the operator adds, perhaps named with modules that are read at first use. Read once: inside the walls there is no
environment."""
IMPORTS = (*STANDARD, "torch", "torchviz", "numpy", *PACKAGES)

_PROCESSES = "a program here has no other processes. Do the work in this one; DataLoader takes num_workers=0."
_NETWORK = "a program here has no network. Make the data in the program, such as torch.randn(...)."
_WHY_NOT = {
    **dict.fromkeys(("subprocess", "pty"), _PROCESSES),
    **dict.fromkeys(("socket", "ssl", "urllib", "http", "requests", "ftplib", "smtplib", "socketserver"), _NETWORK),
    "tqdm": "there is no progress bar here. Loop over the data itself, and print now and then.",
    "matplotlib": "there is no picture of a program's own here. Print the numbers.",
}
_LINES, _NESTING = 2000, 100


class Refused(Exception):  # noqa: N818 - the visitor reads the name
    """The program asks for something that a typed program does not get."""


def check_source(source: str) -> ast.Module:
    """Parse and check. Raises SyntaxError, or Refused with the line in ``args[1]``."""
    if source.rstrip("\n").count("\n") >= _LINES:
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
                raise Refused(f"import {name}: {_why_not(name)}", getattr(node, "lineno", None))
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
    return {"__name__": "__main__", "__file__": FILE, "__builtins__": _builtins(), **given}


def is_trusted() -> bool:
    """Whether programs run without walls, on the machine of whoever types them: any import, and files."""
    return os.environ.get("LAB_TYPED_CODE") == "trusted"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "."] if isinstance(node, ast.ImportFrom) else []


def _why_not(name: str) -> str:
    top = name.split(".")[0]
    if top in _WHY_NOT:
        return _WHY_NOT[top]
    if top in sys.stdlib_module_names:
        return "this part of Python is not there for programs here."
    return (
        "programs here have torch, numpy, torchviz and most of Python's own library. Paste what is needed into the program. "
        "Whoever runs the lab can add a package with LAB_PROGRAM_PACKAGES."
    )


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
