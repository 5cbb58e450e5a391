"""Edits of a program that are never offered, because they only silence an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_MAKES = {
    *("tensor", "as_tensor", "rand", "randn", "zeros", "ones", "full", "arange", "linspace", "empty", "eye"),
    *("rand_like", "randn_like", "zeros_like", "ones_like", "from_numpy", "randint", "normal", "logspace"),
}
"""Functions of torch that make a tensor out of nothing that has a history."""


def why_never(source: str, edited: str) -> str:
    """Why the change from ``source`` to ``edited`` is never offered; empty where it may be.

    Each of these lets a program end clean whose gradients are not what its author asked for.
    """
    try:
        before, after = ast.parse(source), ast.parse(edited)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "it does not parse"
    if _count(_switched(after, "allow_unused")) > _count(_switched(before, "allow_unused")):
        return "allow_unused=True hides that there is no path"
    if _count(_switched(after, "retain_graph", inside_loop=True)) > _count(
        _switched(before, "retain_graph", inside_loop=True)
    ):
        return "retain_graph=True in a loop keeps every graph"
    if _count(_made_leaf(after)) > _count(_made_leaf(before)):
        return "requires_grad_() on a result starts a new history there"
    return ""


def adds_retain_graph(source: str, edited: str) -> bool:
    """Whether ``edited`` keeps a graph that ``source`` does not."""
    return _count(_switched(ast.parse(edited), "retain_graph")) > _count(_switched(ast.parse(source), "retain_graph"))


def _count(found: Iterator[ast.AST]) -> int:
    return sum(1 for _ in found)


_LOOPS = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _switched(tree: ast.AST, keyword: str, *, inside_loop: bool = False) -> Iterator[ast.AST]:
    """Calls with ``keyword`` other than False or None."""
    places = [n for n in ast.walk(tree) if isinstance(n, _LOOPS)] if inside_loop else [tree]
    calls = {call for place in places for call in ast.walk(place) if isinstance(call, ast.Call)}
    for call in calls:
        for given in call.keywords:
            if given.arg == keyword and not (isinstance(given.value, ast.Constant) and not given.value.value):
                yield call


def _made_leaf(tree: ast.AST) -> Iterator[ast.AST]:
    """Places where a tensor that something else computed is told to require gradients."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=receiver, attr="requires_grad_"), args=args):
                off = args and isinstance(args[0], ast.Constant) and not args[0].value
                if not off and not _is_made_here(receiver):
                    yield node
            case ast.Assign(targets=[ast.Attribute(attr="requires_grad")], value=ast.Constant(value=True)):
                yield node
            case ast.Call(keywords=given) if any(_asks(k) for k in given) and not _is_made_here(node):
                yield node


def _asks(given: ast.keyword) -> bool:
    return given.arg == "requires_grad" and not (isinstance(given.value, ast.Constant) and not given.value.value)


def _is_made_here(node: ast.AST) -> bool:
    """Whether an expression is a fresh tensor, perhaps converted: ``torch.randn(3).to(device)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name), args=args):
            return name in _MAKES and not any(isinstance(n, ast.Call) for arg in args for n in ast.walk(arg))
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner)):
            return _is_made_here(inner)
    return False
