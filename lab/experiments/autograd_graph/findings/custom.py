"""Derivatives that somebody wrote in Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from lab.contract import Edit, Finding
from lab.experiments.autograd_graph.findings.record import Explained, Record, on_line, site
from lab.quantities import number_text
from lab.records.operations import Custom


def explain_count(record: Record, message: str, line: int | None) -> Explained | None:
    """backward returned another number of gradients than forward takes arguments."""
    match = re.search(
        r"function (\w+) returned an incorrect number of gradients \(expected (\d+), got (\d+)\)", message
    )
    custom = next((c for c in record.result.custom if match and c.node == match.group(1)), None)
    if match is None or custom is None:
        return None
    wanted, got = int(match.group(2)), int(match.group(3))
    lines = return_lines(record, custom)
    at = lines[0] if lines else custom.backward_line
    arguments = ", ".join(custom.forward_arguments)
    text = (
        f"{custom.name}.forward takes ({arguments}), so backward must return {wanted} values, one for each in the same order; "
        f"{'line ' + str(at) if at else 'it'} returns {got}."
    )
    sites = site(at, "returns too few" if got < wanted else "returns too many", custom.name, got, wanted)
    sites += site(custom.forward_line, "arguments taken here", arguments) + site(line, "fails here", custom.name)
    edits: tuple[Edit, ...] = ()
    returned = record.statement(at)
    if got < wanted and len(lines) == 1 and isinstance(returned, ast.Return) and returned.value:
        last = returned.value.elts[-1] if isinstance(returned.value, ast.Tuple) else returned.value
        end, column = last.end_lineno or last.lineno, last.end_col_offset or 0
        edits = record.source.spans((end, column, column, ", None" * (wanted - got)))
    return Explained(
        text,
        "Return None for the arguments that need no gradient.",
        sites,
        {"expected": wanted, "returned": got},
        edits,
    )


def return_lines(record: Record, custom: Custom) -> list[int]:
    """Lines of the return statements of ``backward``."""
    function = _method(record, custom, "backward")
    return [node.lineno for node in ast.walk(function) if isinstance(node, ast.Return)] if function else []


def _method(record: Record, custom: Custom, name: str) -> ast.FunctionDef | None:
    for node in ast.walk(record.tree) if record.tree else ():
        if isinstance(node, ast.ClassDef) and node.name == custom.name:
            return next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == name), None)
    return None


def context_lines(record: Record, custom: Custom) -> list[tuple[str, int]]:
    """(attribute, line) of what ``forward`` stores on ctx itself and ``backward`` reads."""
    forward, backward = _method(record, custom, "forward"), _method(record, custom, "backward")
    if forward is None or backward is None or not forward.args.args or not backward.args.args:
        return []
    ctx, own = forward.args.args[0].arg, backward.args.args[0].arg
    read = {
        n.attr
        for n in ast.walk(backward)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == own
    }
    return [
        (target.attr, node.lineno)
        for node in ast.walk(forward)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == ctx
        and target.attr in read
        and not isinstance(node.value, (ast.Constant, ast.Name))
    ]


def once_line(record: Record, custom: Custom) -> int | None:
    """Line of the decorator."""
    backward = _method(record, custom, "backward")
    marks = backward.decorator_list if backward else []
    return next((mark.lineno for mark in marks if "once_differentiable" in ast.unparse(mark)), custom.backward_line)


def explain_once(record: Record, line: int | None) -> Explained | None:
    custom = next((c for c in record.result.custom if c.once_differentiable and c.by_program), None)
    if custom is None:
        return None
    text = (
        f"{custom.name}.backward is marked once_differentiable{on_line(once_line(record, custom))}: it was computed without a graph, so it has "
        f"no derivative of its own, and line {line} asks for one."
    )
    sites = site(once_line(record, custom), "cut here", custom.name) + site(line, "fails here", custom.name)
    return Explained(
        text,
        "Write backward with differentiable operations on saved tensors and remove once_differentiable.",
        sites,
        {"Function": custom.name},
    )


def wrong_derivatives(record: Record) -> Iterator[Finding]:
    """A derivative written by hand that differences in float64 contradict, first and second order."""
    for c in record.result.checked:
        custom = next((k for k in record.result.custom if k.name == c.operation and k.by_program), None)
        if custom is None or (c.order == 2 and custom.once_differentiable):
            continue
        scale = max(abs(c.left), abs(c.right), abs(c.engine), 1e-6)
        smooth = abs(c.left - c.right) < 1e-2 * scale
        middle = (c.left + c.right) / 2
        if not smooth or abs(c.engine - middle) < 1e-2 * scale:
            continue
        if c.order == 1 and c.left == c.right == 0:
            continue  # a slope given on purpose where the forward is flat, such as straight through round
        stored = context_lines(record, custom)
        which = "second derivative" if c.order == 2 else "derivative"
        text = f"{custom.name}.backward{on_line(custom.backward_line)} gives a {which} of {number_text(c.engine)} at {number_text(c.at)}; differences in float64 give {number_text(middle)}."
        sites = ()
        if c.order == 2 and stored:
            name, at = stored[0]
            text += f" ctx.{name} was computed in forward{on_line(at)}, where no graph is recorded: the second derivative takes it for a constant."
            sites = site(at, "cut here", f"ctx.{name}")
        returned = return_lines(record, custom)
        sites += site(
            returned[0] if returned else custom.backward_line, "wrong derivative here", custom.name, c.engine, middle
        )
        repair = (
            "Save the input with ctx.save_for_backward and compute backward from it."
            if c.order == 2
            else "Check it in float64: torch.autograd.gradcheck(Function.apply, inputs)."
        )
        yield Finding(
            level="warning",
            title=f"{custom.name}: the {which} is wrong",
            text=text,
            evidence={"by hand": c.engine, "differences": middle},
            line=sites[0].line if sites else None,
            repair=repair,
            sites=sites,
        )
        return
