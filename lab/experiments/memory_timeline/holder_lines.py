"""The line on which a program puts a tensor where it is held."""

from __future__ import annotations

import ast
import re

_STORING = ("append", "extend", "add", "insert", "update", "setdefault", "appendleft", "put", "push")


def line_of(code: str, path: str) -> int | None:
    """Last line that stores into the last name of ``path``: ``buffer`` of ``buffer[*]``, ``kept`` of ``model.kept``."""
    inside, _, outside = path.partition(" of ")
    path = inside if outside else path.removesuffix(".grad")
    names = re.findall(r"[A-Za-z_]\w*(?![\w']*')", re.sub(r"\[[^]]*\]", "", path))
    if not names:
        return None
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    calls, assigned = [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STORING:
            calls += [node.lineno] * (_name(node.func.value) == names[-1])
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            assigned += [node.lineno for target in targets if names[-1] in _stored(target)]
    return max(calls, default=None) or max(assigned, default=None)


def _stored(target: ast.expr) -> list[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [name for part in target.elts for name in _stored(part)]
    return [_name(target)]


def _name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
