"""The names that a program gives on a line, read from its text: for tensors that had a name only inside a function."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field


@dataclass
class Assigned:
    """One assignment: its targets, and the operation whose result they get."""

    names: tuple[str, ...]
    operation: str
    """Name of the outermost call or operator: ``sigmoid``, ``add``; empty when it is none."""
    single: bool
    """The operation occurs once in the expression."""


_OPERATORS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.MatMult: "matmul",
    ast.USub: "neg", ast.Mod: "remainder", ast.FloorDiv: "floor_divide",
}  # fmt: skip
ALIASES = {
    "true_divide": "div",
    "__rsub__": "sub",
    "rsub": "sub",
    "__rpow__": "pow",
    "__rtruediv__": "div",
    "__rdiv__": "div",
}


@dataclass
class AssignedNames:
    """By line of the program."""

    lines: dict[int, Assigned] = field(default_factory=dict)

    def name(self, line: int | None, operation: str, result: int, results: int) -> str:
        """What the program calls result number ``result`` of ``results`` of ``operation`` on ``line``; empty when unknown."""
        found = self.lines.get(line or 0)
        if found is None or not found.single:
            return ""
        bare = ALIASES.get(operation, operation.strip("_"))
        if found.operation and found.operation != bare and found.operation != operation:
            return ""
        if not found.operation:
            return ""
        if len(found.names) == 1:
            return found.names[0] if results == 1 else f"{found.names[0]}[{result}]"
        return found.names[result] if len(found.names) == results else ""


def assigned_names(source: str) -> AssignedNames:
    """Read from the text. A program that cannot be parsed gives no names."""
    found = AssignedNames()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            names, operation = _targets(node.targets[0]), _operation(node.value)
            if names:
                single = sum(_operation(n) == operation for n in ast.walk(node.value) if isinstance(n, ast.expr)) == 1
                found.lines[node.value.end_lineno or node.lineno] = found.lines[node.lineno] = Assigned(
                    names, operation, single
                )
    return found


def _targets(target: ast.expr) -> tuple[str, ...]:
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    plain = all(isinstance(part, (ast.Name, ast.Attribute)) for part in parts)
    return tuple(ast.unparse(part) for part in parts) if plain else ()


def _operation(value: ast.expr) -> str:
    if isinstance(value, ast.BinOp):
        return _OPERATORS.get(type(value.op), "")
    if isinstance(value, ast.UnaryOp):
        return _OPERATORS.get(type(value.op), "")
    if isinstance(value, ast.Call):
        called = value.func
        return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return "getitem" if isinstance(value, ast.Subscript) else ""
