"""Methods of a module's class that look like a misspelt special one."""

from __future__ import annotations

import ast
from difflib import SequenceMatcher
from typing import Any

from torch import nn

from lab.instruments.describing.names import class_module
from lab.records.anatomy import Suspect

SPECIAL = ("__init__", "forward", "__call__")
NEAR = 0.8
"""Similarity from which a name is taken for a misspelt one: ``__int__`` has 0.93, ``forwrad`` 0.86."""
_KNOWN = {"_init_weights", "init_weights", "_init", "init_params", "forward_features", "forward_head"}


def suspects_of(names: dict[str, Any], code: str) -> tuple[Suspect, ...]:
    """For classes that lack the special method itself."""
    lines = {
        (owner.name, f.name): f.lineno
        for owner in ast.walk(_parsed(code))
        if isinstance(owner, ast.ClassDef)
        for f in owner.body
        if isinstance(f, ast.FunctionDef)
    }
    found = []
    for kind in [
        v for v in names.values() if isinstance(v, type) and issubclass(v, nn.Module) and class_module(v) == "__main__"
    ]:
        for special in SPECIAL[:2]:
            if special not in vars(kind):
                found += [
                    Suspect(name, special, lines[kind.__name__, name], kind.__name__)
                    for name in vars(kind)
                    if (kind.__name__, name) in lines and name not in _KNOWN and _near(name, special)
                ]
    return tuple(found)


def _near(name: str, special: str) -> bool:
    if name.strip("_") == special.strip("_"):
        return True
    return name.count("_") <= 4 and SequenceMatcher(None, name, special).ratio() >= NEAR


def _parsed(code: str) -> ast.AST:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])
