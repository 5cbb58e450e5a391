"""Writes that torch refuses at once: what would be written, and why it must not be."""

from __future__ import annotations

import ast
import re

from lab.contract import Edit
from lab.experiments.autograd_graph.findings.in_place import inplace_false, rewritten, written_name
from lab.experiments.autograd_graph.findings.record import Explained, Record, module_words, on_line, site
from lab.records.operations import Operand, Refused


def explain_refused_write(record: Record, refused: Refused) -> Explained | None:
    """The first operand is what would be written."""
    if not refused.operands:
        return None
    target, message = refused.operands[0], refused.message
    for words, explain in _REFUSED:
        if words in message:
            return explain(record, refused, target)
    return None


def _name(operand: Operand) -> str:
    return operand.name or (f"the result of {operand.made_by}" if operand.made_by else "the tensor")


def _leaf(record: Record, refused: Refused, target: Operand) -> Explained:
    name = _name(target)
    text = (
        f"{_operation(refused)}{on_line(refused.line)} would overwrite {name}. A leaf that requires gradients has no history; "
        "an in-place operation would give it one."
    )
    sites = site(refused.line, "overwritten here", name) + site(target.line, "leaf born here", name)
    repair = "Edit it inside `with torch.no_grad():`, or compute a new tensor: w = w - lr * g."
    return Explained(text, repair, sites, {"written": name, "is leaf": True}, _without_gradients(record, refused.line))


def _leaf_view(record: Record, refused: Refused, target: Operand) -> Explained:
    leaf = target.view_of if target.view_of not in ("", "a result") else _name(target)
    through = (
        f"{target.name} (line {target.line}) is a view of a leaf, {leaf}"
        if target.name and target.name != leaf
        else f"This is a view of a leaf, {leaf}"
    )
    text = (
        f"{through}: {_operation(refused)}{on_line(refused.line)} would write through it into {leaf}, "
        "which requires gradients and whose history must stay empty."
    )
    sites = site(refused.line, "overwritten here", leaf) + (
        site(target.line, "view made here", target.name or leaf) if target.line != refused.line else ()
    )
    repair = "Edit parameters inside `with torch.no_grad():`."
    return Explained(text, repair, sites, {"written": leaf, "is leaf": True}, _without_gradients(record, refused.line))


def _without_gradients(record: Record, line: int | None) -> tuple[Edit, ...]:
    statement = record.statement(line)
    return record.source.under(statement, "with torch.no_grad():") if statement else ()


def _expanded(record: Record, refused: Refused, target: Operand) -> Explained:
    name, strides = _name(target), target.strides
    source = f"{target.view_of} expanded" if target.view_of not in ("", "a result") else "expanded memory"
    times = [size for size, stride in zip(target.shape or (), strides, strict=False) if stride == 0]
    text = (
        f"{name} is {source}{on_line(target.line)}: its strides are {strides}, so expand() repeats memory without copying it and "
        f"{' × '.join(map(str, times)) or 'several'} elements are one. A write would hit them all. This has nothing to do with autograd."
    )
    sites = site(refused.line, "overwritten here", name) + site(
        target.line, "expanded here", name, after=f"strides {strides}"
    )
    edits = (
        record.inserted(refused.line, f"{target.name} = {target.name}.clone()") if target.name.isidentifier() else ()
    )
    return Explained(text, f"Copy first: {name} = {name}.clone().", sites, {"strides": str(strides)}, edits)


def _several_views(record: Record, refused: Refused, target: Operand) -> Explained:
    name = _name(target)
    text = (
        f"{name} is one of several views that {target.made_by or 'one call'}{on_line(target.line)} returned together. "
        f"torch does not let {_operation(refused)}{on_line(refused.line)} write into one of them: the others share its memory and its node."
    )
    sites = site(refused.line, "overwritten here", name) + site(target.line, "views made here", name)
    repair, _ = rewritten(record, refused.line, name)
    return Explained(text, repair, sites, {"made by": target.made_by}, _all_rewritten(record, target.line))


def _all_rewritten(record: Record, made: int | None) -> tuple[Edit, ...]:
    """Every write by a method into one of the names that line ``made`` gives."""
    statement = record.statement(made)
    named = (
        {n.id for n in ast.walk(statement.targets[0]) if isinstance(n, ast.Name)}
        if isinstance(statement, ast.Assign)
        else set()
    )
    found: list[Edit] = []
    for line in range(1, len(record.lines) + 1):
        written = record.statement(line)
        if isinstance(written, ast.Expr) and written_name(written) in named and written.lineno == line:
            found += rewritten(record, line, "")[1]
    return tuple(found)


def _view_without_grad(record: Record, refused: Refused, target: Operand) -> Explained:
    name = _name(target)
    text = (
        f"{name} was made as a view with gradients switched off{on_line(target.line)} and is written with gradients on"
        f"{on_line(refused.line)}. torch cannot know whether the write should be recorded."
    )
    sites = site(target.line, "view made without gradients", name) + site(refused.line, "fails here", name)
    return Explained(text, "Make the view and write into it in the same mode.", sites, {"view of": target.view_of})


def born_in_inference(record: Record, line: int | None) -> Explained | None:
    """A tensor made in inference mode whose name stands on the line that failed."""
    made = next(
        (
            m
            for m in record.result.made
            if m.inference and m.name and re.search(rf"\b{re.escape(m.name)}\b", record.text(line))
        ),
        None,
    )
    if made is None:
        return None
    text = f"{made.name} was made in inference mode{on_line(made.line)} by {made.operation} and stays an inference tensor: it can never require gradients."
    sites = site(made.line, "born in inference mode", made.name) + site(line, "fails here", made.name)
    return Explained(
        text,
        f"Make it outside the mode: {made.name} = {made.name}.clone() there gives a normal tensor.",
        sites,
        {"inference tensor": made.name},
    )


def _inference(record: Record, refused: Refused, target: Operand) -> Explained | None:
    operand = next((o for o in refused.operands if o.inference), None)
    if operand is None:
        return None
    name = _name(operand)
    text = (
        f"{name} was made in inference mode{on_line(operand.line)} and stays an inference tensor: it has no version counter, so "
        f"{_operation(refused)}{on_line(refused.line)} can neither save it for backward nor record a write into it."
    )
    sites = site(operand.line, "born in inference mode", name) + site(refused.line, "fails here", name)
    return Explained(
        text, f"Make a normal tensor outside the mode: {name} = {name}.clone().", sites, {"inference tensor": name}
    )


def _hook_output(record: Record, refused: Refused, target: Operand) -> Explained:
    hooked = [n for n, text in enumerate(record.lines, 1) if "register_full_backward" in text]
    made = [
        n for n, text in enumerate(record.lines, 1) if "inplace=True" in text or re.search(r"(ReLU|ELU)\(True\)", text)
    ]
    text = (
        f"A full backward hook{on_line(hooked[0]) if hooked else ''} wraps the output of its module in a node whose result must not "
        f"be overwritten, and {_operation(refused)}{module_words(refused.module)}{on_line(refused.line)} overwrites it."
    )
    sites = (
        (site(made[0], "made in-place here") if made else ())
        + (site(hooked[0], "hook put here") if hooked else ())
        + site(refused.line, "fails here", _name(target))
    )
    repair = "Use inplace=False in the next layer, or hook the output tensor instead of the module."
    return Explained(text, repair, sites, {"operation": refused.operation}, inplace_false(record))


def _operation(refused: Refused) -> str:
    return {"__setitem__": "the assignment"}.get(refused.operation, refused.operation)


_REFUSED = [
    ("a view of a leaf Variable that requires grad is being used in an in-place", _leaf_view),
    ("a leaf Variable that requires grad is being used in an in-place", _leaf),
    ("refers to a single memory location", _expanded),
    ("BackwardHookFunction", _hook_output),
    ("returns multiple views", _several_views),
    ("A view was created in no_grad mode", _view_without_grad),
    ("nference tensor", _inference),
]
