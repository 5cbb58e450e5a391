"""Edits of a program made from its syntax tree: comments, indentation, calls over several lines and the other statements
of a line stay as they are.

Each method gives the edits, one for each line that changes, or none where the change cannot be written so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from lab.contract import Edit

_LOOSE = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.BoolOp, ast.Lambda, ast.Tuple, ast.NamedExpr)
"""Values that need brackets beside another operator."""
_OPERATORS = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@"},
    **{ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"},
}


LIBRARIES = ("torch", "F", "nn")


class Source:
    """The text of a program with its statements."""

    def __init__(self, code: str) -> None:
        self.lines = [line.rstrip("\r") for line in code.split("\n")]
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = None
        self.tree = tree
        nodes = ast.walk(tree) if tree else ()
        self._simple = [node for node in nodes if isinstance(node, ast.stmt) and not hasattr(node, "body")]

    def text(self, node: ast.AST) -> str:
        return ast.get_source_segment("\n".join(self.lines), node) or ""

    def statement(self, line: int | None, wanted: Callable[[ast.stmt], bool] = lambda s: True) -> ast.stmt | None:
        """The simple statement on a line, perhaps one of several lines; None where none or more than one is ``wanted``."""
        here = [s for s in self._simple if line and s.lineno <= line <= (s.end_lineno or s.lineno) and wanted(s)]
        return here[0] if len(here) == 1 else None

    def reads(self, line: int | None) -> set[str]:
        """Names that the statements of a line read."""
        here = [s for s in self._simple if line and s.lineno <= line <= (s.end_lineno or s.lineno)]
        names = [n for s in here for n in ast.walk(s) if isinstance(n, ast.Name)]
        return {n.id for n in names if isinstance(n.ctx, ast.Load)}

    def given_to(self, name: str, line: int) -> list[ast.stmt]:
        """Statements before ``line`` that store into ``name``."""
        return [
            s
            for s in self._simple
            if s.lineno < line
            and any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(s))
        ]

    def leads_to(self, line: int | None) -> set[int]:
        """Lines of the statements that what ``line`` reads may come from: assignments, and returns of functions by name."""
        names, seen, lines = self.reads(line), set[str](), set[int]()
        functions = [n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)] if self.tree else []
        while names - seen:
            name = (names - seen).pop()
            seen.add(name)
            returns = [n for f in functions if f.name == name for n in ast.walk(f) if isinstance(n, ast.Return)]
            for statement in (*self.given_to(name, len(self.lines) + 1), *returns):
                lines.add(statement.lineno)
                names |= self.reads(statement.lineno)
        return lines

    def spans(self, *changes: tuple[int, int, int, str]) -> tuple[Edit, ...]:
        """(line, from, to, new text) each; columns as in the tree, which counts bytes."""
        new: dict[int, str] = {}
        for line, start, end, text in sorted(changes, reverse=True):
            old = new.get(line, self.lines[line - 1]).encode()
            new[line] = (old[:start] + text.encode() + old[end:]).decode()
        return tuple(Edit(line, self.lines[line - 1], text) for line, text in sorted(new.items()))

    def exchanged(self, node: ast.AST, text: str) -> tuple[Edit, ...]:
        """An expression or statement that fills no more than a line, replaced."""
        at = _span(node)
        return self.spans((at[0], at[1], at[3], text)) if at[0] == at[2] else ()

    def before(self, statement: ast.stmt, new: str) -> tuple[Edit, ...]:
        """One more statement in front: on a line of its own, or on this one where that holds something before it."""
        line, column = statement.lineno, statement.col_offset
        head = self.lines[line - 1].encode()[:column].decode()
        if head.strip():
            return self.spans((line, column, column, f"{new}; "))
        old = self.lines[line - 1]
        return (Edit(line, old, f"{head}{new}\n{old}"),)

    def under(self, statement: ast.stmt, header: str, inside: Sequence[Edit] = ()) -> tuple[Edit, ...]:
        """The statement one step further in, below ``header``, perhaps with changes of its own lines."""
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        lines = self.lines[first - 1 : last]
        new = {edit.line: edit.new for edit in inside}
        head = lines[0].encode()[: statement.col_offset].decode()
        tail = lines[-1].encode()[statement.end_col_offset or 0 :].decode().strip()
        if head.strip() or (tail and not tail.startswith("#")) or any('"""' in t or "'''" in t for t in lines):
            return ()
        top = Edit(first, lines[0], f"{head}{header}\n    {new.get(first, lines[0])}")
        below = [(first + k, text) for k, text in enumerate(lines[1:], 1) if text.strip()]
        return (top, *(Edit(line, text, f"    {new.get(line, text)}") for line, text in below))

    def removed(self, statement: ast.stmt) -> tuple[Edit, ...]:
        """A statement that fills its line alone, in a block that holds others, taken out."""
        line = self.lines[statement.lineno - 1]
        alone = statement.lineno == statement.end_lineno and line.split("#")[0].strip() == self.text(statement)
        block = next((b for b in self._blocks() if statement in b), ())
        return (Edit(statement.lineno, line, ""),) if alone and len(block) > 1 else ()

    def are_beside(self, first: ast.stmt, second: ast.stmt) -> bool:
        """Whether both stand in the same block."""
        return any(first in block and second in block for block in self._blocks())

    def _blocks(self) -> list[list[ast.stmt]]:
        found = []
        for node in ast.walk(self.tree) if self.tree else ():
            found += [
                b
                for b in (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
                if isinstance(b, list)
            ]
        return found

    def out_of_place(self, statement: ast.stmt | None, *, items: bool = False) -> tuple[str, tuple[Edit, ...]]:
        """(the new statement in words, edits) for ``y += x``, ``self.y += x`` and ``y.add_(x)``; ``items``: also for ``y[0] += x``."""
        if isinstance(statement, ast.AugAssign) and (items or not isinstance(statement.target, ast.Subscript)):
            return self._assigned_anew(statement, self.text(statement.target))
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner)) as called, args=args)):
                pass
            case ast.Assign(
                targets=[ast.Name(id=assigned)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner)) as called, args=args),
            ):
                pass
            case _:
                return "", ()
        name, pure = owner, called.attr[:-1]
        if owner in LIBRARIES:
            name = args[0].id if args and isinstance(args[0], ast.Name) else ""
        start, end = _span(called.value), _span(called)
        assigns = isinstance(statement, ast.Assign)
        if not name or start[2] != end[2] or (assigns and assigned != name):
            return "", ()
        begin = () if assigns else ((start[0], start[1], start[1], f"{name} = "),)
        return f"{name} = {owner}.{pure}(...)", self.spans(*begin, (end[2], start[3], end[3], f".{pure}"))

    def in_place(self, statement: ast.stmt | None, name: str) -> tuple[Edit, ...]:
        """``w = w - x`` as ``w -= x`` under no_grad."""
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=target)], value=ast.BinOp(left=ast.Name(id=left) as first, op=op, right=right)
            ) if target == left == name and type(op) in _OPERATORS and first.lineno == right.lineno:
                written = f"{name} {_OPERATORS[type(op)]}= "
                gap = self.lines[right.lineno - 1].encode()[first.end_col_offset or 0 : right.col_offset].decode()
                brackets = gap.split(_OPERATORS[type(op)], 1)[1].strip()
                change = (statement.lineno, statement.col_offset, right.col_offset, written + brackets)
                return self.under(statement, "with torch.no_grad():", self.spans(change))
        return ()

    def _assigned_anew(self, statement: ast.AugAssign, name: str) -> tuple[str, tuple[Edit, ...]]:
        line, _, _, start = _span(statement.target)
        value_line, value_start, end_line, end = _span(statement.value)
        symbol = _OPERATORS.get(type(statement.op))
        if symbol is None or line != value_line:
            return "", ()
        gap = self.lines[line - 1].encode()[start:value_start].decode()
        new = gap.replace(f"{symbol}=", f"= {name} {symbol}", 1)
        changes = [(line, start, value_start, new)]
        if isinstance(statement.value, _LOOSE) and "(" not in gap:
            changes = [(line, start, value_start, f"{new}("), (end_line, end, end, ")")]
        value = re.sub(r"\s+", " ", self.text(statement.value))
        value = f"({value})" if isinstance(statement.value, _LOOSE) else value
        return f"{name} = {name} {symbol} {value}", self.spans(*changes)


def _span(node: ast.AST) -> tuple[int, int, int, int]:
    """(line, column, last line, column after it)."""
    at = node if isinstance(node, (ast.expr, ast.stmt)) else ast.Pass(lineno=1, col_offset=0)
    return at.lineno, at.col_offset, at.end_lineno or at.lineno, at.end_col_offset or at.col_offset
