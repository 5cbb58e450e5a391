"""From the line on which a program calls backward to the statements that compute the loss.

NOTE The slice.
1. It is made backwards, from the expression on which backward is called. A statement before it belongs to the slice
   when it gives a value to a name that is needed and whose value has a graph.
2. What has no graph (data, settings, modules) is taken as it was when backward was called: a batch that was moved or
   reshaped on the way is not reshaped again.
3. The body of a loop counts alone, unless what is needed was made before the loop.
4. A ``with`` around it, such as autocast, belongs to it.
5. Statements keep their line numbers, so that an error has its line.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

RESULT = "__loss__"
"""The name that the slice gives its result."""
_MUTATE = ("append", "extend", "add", "update", "insert")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Path = list[tuple[list[ast.stmt], int]]


@dataclass(frozen=True)
class _Statement:
    node: ast.stmt
    stores: frozenset[str]
    loads: frozenset[str]


@dataclass(frozen=True)
class LossLines:
    """The statements of a slice, in order; the last one binds ``RESULT``."""

    body: tuple[ast.stmt, ...]
    reads: frozenset[str]
    """Names whose value from outside is read."""
    line: int
    """Where backward is called."""

    @property
    def rule(self) -> ast.expr | None:
        """The function that is called last for the loss; None for another expression."""
        value = _only_value(self.body, RESULT)
        if isinstance(value, ast.Name):
            value = _only_value(self.body, value.id)
        return value.func if isinstance(value, ast.Call) else None


class BackwardCall:
    """A place in a program where backward is called."""

    def __init__(self, tree: ast.Module, line: int) -> None:
        self._path, self._line = _path(tree.body, line), line
        call = _backward(self._path[-1][0][self._path[-1][1]], line) if self._path else None
        self.loss = _receiver(call) if call else None
        self._blocks = [[_statement(node) for node in block[:i]] for block, i in self._path]

    @property
    def stores(self) -> set[str]:
        return set().union(*(s.stores for block in self._blocks for s in block))

    @property
    def names(self) -> set[str]:
        """All that the slice might read."""
        own = {n.id for n in ast.walk(self.loss) if isinstance(n, ast.Name)} if self.loss else set()
        return own.union(*(s.loads | s.stores for block in self._blocks for s in block))

    def slice(self, needed: Collection[str], held: Collection[str]) -> LossLines | None:
        """The statements that make the loss. None where they do not stand before the call in the same function.

        ``needed``: names whose value has a graph or is gone. ``held``: names of objects that hold such values.
        """
        if self.loss is None:
            return None
        last = ast.Assign([ast.Name(RESULT, ast.Store())], self.loss)
        ast.fix_missing_locations(ast.copy_location(last, self.loss))
        kept: list[ast.stmt] = [last]
        loads = set(_statement(last).loads)
        found: set[str] = set()
        missing: set[str] = set()
        for depth in range(len(self._path) - 1, -1, -1):
            for statement in reversed(self._blocks[depth]):
                if statement.stores & loads & {*needed, *held}:
                    kept.insert(0, statement.node)
                    loads |= statement.loads
                    found |= statement.stores
            around = self._path[depth - 1][0][self._path[depth - 1][1]] if depth else None
            missing = (loads & set(needed)) - found
            if around is None or isinstance(around, _SCOPES):
                break
            if isinstance(around, (ast.For, ast.While)) and not missing:
                break
            if isinstance(around, ast.With):
                kept = [ast.copy_location(ast.With(around.items, kept), around)]
                loads |= {n.id for item in around.items for n in ast.walk(item) if isinstance(n, ast.Name)}
        return None if missing else LossLines(tuple(kept), _reads(kept), self._line)


def _path(body: list[ast.stmt], line: int) -> _Path:
    """(block, index in it) from the outermost block to the one whose statement calls backward on ``line``."""
    for i, node in enumerate(body):
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            for block in _blocks(node):
                if found := _path(block, line):
                    return [(body, i), *found]
            if not any(_blocks(node)) and _backward(node, line):
                return [(body, i)]
    return []


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(node, name, None):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _backward(node: ast.stmt, line: int) -> ast.Call | None:
    for call in ast.walk(node):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "backward"
            and call.lineno <= line <= (call.end_lineno or line)
        ):
            return call
    return None


def _receiver(call: ast.Call) -> ast.expr | None:
    """``loss`` of ``loss.backward()`` and of ``torch.autograd.backward(loss)``."""
    assert isinstance(call.func, ast.Attribute)
    if ast.unparse(call.func.value) in ("torch.autograd", "autograd"):
        return call.args[0] if call.args else None
    return call.func.value


def _statement(node: ast.stmt) -> _Statement:
    stores, loads = set(), set()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Store()):
                stores.add(name)
            case ast.Name(id=name, ctx=ast.Load()):
                loads.add(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                loads.add(name)
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                stores.update(_base(part))
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _MUTATE:
                stores.update(_base(value))
    return _Statement(node, frozenset(stores), frozenset(loads))


def _reads(body: list[ast.stmt]) -> frozenset[str]:
    """What the statements read before they bind it, such as the hidden state of the step before."""
    reads: set[str] = set()
    bound: set[str] = set()
    for statement in map(_statement, body):
        reads |= statement.loads - bound
        bound |= statement.stores
    return frozenset(reads)


def _base(node: ast.expr) -> set[str]:
    """The name at the beginning of ``a.b[c].d``."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _only_value(body: tuple[ast.stmt, ...], name: str) -> ast.expr | None:
    """What ``name`` is given, where that happens once."""
    nodes = [node for statement in body for node in ast.walk(statement)]
    bound = [n.value for n in nodes if isinstance(n, ast.Assign) and _is(n.targets[0], name)]
    return bound[0] if len(bound) == 1 and not any(isinstance(n, ast.AugAssign) for n in nodes) else None


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
