"""Statements of a program, read from its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

LOST = {
    *("to", "float", "double", "half", "bfloat16", "int", "long", "cuda", "cpu", "detach", "clone", "reshape", "view"),
    *("permute", "transpose", "contiguous", "squeeze", "unsqueeze", "t", "flatten", "expand", "type", "add", "sub", "mul"),
    *("div", "clamp", "masked_fill", "scatter", "index_add", "index_fill", "requires_grad"),
}  # fmt: skip


def lost_results(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """(line, method, receiver) of statements that call such a method and keep nothing; not the last line, which is shown."""
    shown = tree.body[-1] if tree.body else None
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=receiver, attr=method))) if method in LOST:
                if node is not shown:
                    yield node.lineno, method, ast.unparse(receiver)


def chained_assignments(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, target) of assignments through two indexings."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=ast.Subscript()) as target]):
                yield node.lineno, ast.unparse(target)
            case ast.AugAssign(target=ast.Subscript(value=ast.Subscript()) as target):
                yield node.lineno, ast.unparse(target)


def appended(tree: ast.Module, holder: str) -> int | None:
    """The line that puts something into a list of this name."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "insert")) if name == holder:
                return node.lineno
    return None


def adds_to_itself(tree: ast.Module, line: int | None) -> bool:
    """``x = x + y`` on this line."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(left=left, right=right)) if (
                node.lineno == line
            ):
                return any(isinstance(side, ast.Name) and side.id == name for side in (left, right))
    return False
