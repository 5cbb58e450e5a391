"""Code of the program that the engine calls: custom functions and hooks. The error comes at backward, the cause stands earlier."""

from __future__ import annotations

import ast
import re
from typing import Any

from lab.experiments.autograd_graph.faults.passes import failed
from lab.experiments.autograd_graph.findings import custom
from lab.experiments.autograd_graph.findings.record import Explained, Record, on_line, site
from lab.records.operations import Custom
from lab.records.program import Ended


def explain(record: Record, ended: Ended) -> Explained | None:
    message = ended.message
    if "save_for_backward can only save" in message:
        return _saved_no_tensor(record, ended)
    if "Legacy autograd function" in message:
        return _called_as_object(record, ended)
    pairs = failed(record, ended)
    line = pairs[0][0].line if pairs else ended.line
    if not pairs:
        return None
    if (
        "has changed the size of value" in message
        or "has changed the type of value" in message
        or "but hook returned" in message
    ):
        return _hook(record, message, line)
    written = _failing(record, message, pairs[0][1][-1].node if pairs[0][1] else None)
    if written is None:
        return None
    if "returned an invalid gradient" in message or "expected Variable or None" in message:
        return _wrong_gradient(record, written, message, line)
    if "must implement either the backward" in message:
        return _no_backward(record, written, line)
    inside = _inside_backward(record, ended.line)
    return _raised_inside(record, inside, ended, line) if inside else None


def _failing(record: Record, message: str, node: int | None) -> Custom | None:
    """The custom function that the message names, whose node ran last, or the only one."""
    own = [c for c in record.result.custom if c.by_program]
    last = record.nodes.get(node) if node is not None else None
    named = [c for c in own if c.node in message] or [c for c in own if last and c.node == last.name]
    return (named or own)[0] if named or len(own) == 1 else None


def _method_of(record: Record, name: str, method: str) -> ast.FunctionDef | None:
    for node in ast.walk(record.tree) if record.tree else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            return next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == method), None)
    return None


def _wrong_gradient(record: Record, written: Custom, message: str, line: int | None) -> Explained:
    returned = custom.return_lines(record, written)
    at = returned[-1] if returned else written.backward_line
    sizes = re.search(r"at index (\d+) - got (\[.*?\]) but expected shape compatible with (\[.*?\])", message)
    got = re.search(r"\(got (\w+)\)", message)
    sites = site(at, "returned here", written.name) + site(line, "fails here", written.name)
    if sizes:
        arguments = written.forward_arguments
        which = arguments[int(sizes[1])] if int(sizes[1]) < len(arguments) else f"argument {sizes[1]}"
        text = f"{written.name}.backward returns a gradient of shape {sizes[2]} for {which}{on_line(at)}, and {which} has shape {sizes[3]}. A gradient has one number for each element."
        repair = f"Return a tensor of shape {sizes[3]} for {which}: sum over what the forward broadcast."
        return Explained(text, repair, sites, {"returned": sizes[2], "needed": sizes[3]})
    kind = f"a {got[1]}" if got else "something of another kind"
    text = f"{written.name}.backward returns {kind}{on_line(at)}, where a tensor of the shape of the argument belongs, or None."
    repair = "Return a tensor for each argument of forward, such as torch.full_like(x, 2.0), or None."
    return Explained(text, repair, sites, {"returned": got[1] if got else ""})


def _saved_no_tensor(record: Record, ended: Ended) -> Explained | None:
    """The call stands in a forward; the error comes when apply keeps what was saved."""
    number = re.search(r"argument (\d+) is of type (\w+)", ended.message)
    for node in ast.walk(record.tree) if record.tree else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="save_for_backward"), args=args) if number:
                if len(args) <= int(number[1]):
                    continue
                given = record.source.text(args[int(number[1])])
                text = (
                    f"save_for_backward{on_line(node.lineno)} is given {given}, a {number[2]}. It keeps tensors only."
                )
                sites = site(node.lineno, "kept here", given) + site(ended.line, "fails here")
                return Explained(text, f"Store it on ctx itself: ctx.{given} = {given}." if given.isidentifier() else "Store it on ctx itself.", sites, {"type": number[2]})  # fmt: skip
    return None


def _called_as_object(record: Record, ended: Ended) -> Explained | None:
    statement = record.statement(ended.line)
    classes = {n.name: n.lineno for n in ast.walk(record.tree) if isinstance(n, ast.ClassDef)} if record.tree else {}
    for node in ast.walk(statement) if statement else ():
        match node:
            case ast.Call(func=ast.Call(func=ast.Name(id=name)) as made) if name in classes:
                text = f"{name} is called as an object{on_line(ended.line)}. A custom Function keeps no state of its own: apply runs its forward and records the node."
                sites = site(ended.line, "fails here", name) + site(classes[name], "defined here", name)
                edits = record.source.exchanged(made, f"{name}.apply")
                return Explained(text, f"Call {name}.apply(...).", sites, {"Function": name}, edits)
    return None


def _no_backward(record: Record, written: Custom, line: int | None) -> Explained:
    at = next(
        (n.lineno for n in ast.walk(record.tree) if isinstance(n, ast.ClassDef) and n.name == written.name)
        if record.tree
        else iter(()),
        written.forward_line,
    )
    text = (
        f"{written.name}{on_line(at)} has no method backward, so the engine has nothing to run where its node stands."
    )
    sites = site(at, "backward is missing here", written.name) + site(line, "fails here", written.name)
    repair = (
        "Write it as a static method: def backward(ctx, grad_output), one return value for each argument of forward."
    )
    return Explained(text, repair, sites, {"Function": written.name})


def _inside_backward(record: Record, line: int | None) -> Custom | None:
    for written in record.result.custom:
        method = _method_of(record, written.name, "backward")
        if method and line and method.lineno <= line <= (method.end_lineno or 0):
            return written
    return None


def _raised_inside(record: Record, written: Custom, ended: Ended, line: int | None) -> Explained:
    called = f"{written.name}.backward ran this line for the backward{on_line(line)}"
    saved = _saved(record, written)
    sites = site(ended.line, "fails here", written.name) + site(line, "called from here")
    if "values to unpack" in ended.message and "saved_tensors" in record.text(ended.line) and saved is not None:
        at, count = saved
        text = f"ctx.save_for_backward{on_line(at)} keeps {count} tensor{'s' if count != 1 else ''}, and line {ended.line} takes another number out of ctx.saved_tensors. {called}."
        repair = "Take out as many as were saved, in the same order; one is (x,) = ctx.saved_tensors."
        return Explained(text, repair, site(at, "kept here", written.name) + sites, {"saved": count})
    whole = _saved_tuple(record, written)
    if whole and "'tuple'" in ended.message:
        text = (
            f"ctx.saved_tensors is a tuple, and {whole.targets[0].id} on line {whole.lineno} takes all of it. {called}."
        )
        site_of_tuple = site(whole.lineno, "a tuple from here", whole.targets[0].id)
        edits = (
            record.source.exchanged(whole.targets[0], f"({whole.targets[0].id},)") if saved and saved[1] == 1 else ()
        )
        repair = f"Take it apart: ({whole.targets[0].id},) = ctx.saved_tensors."
        return Explained(text, repair, site_of_tuple + sites, {"type": "tuple"}, edits)
    return Explained(f"{called}: {ended.message[:200]}.", "", sites, {"Function": written.name})


def _saved_tuple(record: Record, written: Custom) -> Any:
    """``x = ctx.saved_tensors``, which takes the tuple whole."""
    backward = _method_of(record, written.name, "backward")
    for node in ast.walk(backward) if backward else ():
        match node:
            case ast.Assign(targets=[ast.Name()], value=ast.Attribute(attr="saved_tensors")):
                return node
    return None


def _saved(record: Record, written: Custom) -> tuple[int, int] | None:
    forward = _method_of(record, written.name, "forward")
    for node in ast.walk(forward) if forward else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="save_for_backward"), args=args):
                return node.lineno, len(args)
    return None


def _hook(record: Record, message: str, line: int | None) -> Explained | None:
    """The hook whose return value torch refused."""
    placed = [h for h in record.result.hooks if h.kind == "register_hook" and h.line]
    named = re.search(r"hook '(.+?)' has", message)
    name = named[1].strip("<>") if named else ""
    fits = [h for h in placed if name in record.text(h.line)] or placed
    if len({h.line for h in fits}) != 1:
        return None
    hook = fits[0]
    got = re.search(r"hook returned '(.+?)'", message)
    what = f"returns a {got[1]}" if got else "returns a gradient of another size"
    text = f"The hook that line {hook.line} puts on {hook.name or 'a tensor'} {what}. What a hook returns replaces the gradient, so it is a tensor of the same shape."
    sites = site(hook.line, "hook put here", hook.name) + site(line, "fails here")
    repair = "Return a tensor like the one it is given, such as g * 0.5, or nothing to leave the gradient as it is."
    return Explained(text, repair, sites, {"hook": hook.kind})
