"""In-place writes: what kept the tensor, what wrote into it, and what fails for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import torch

from lab.contract import Edit, Finding, Site
from lab.experiments.autograd_graph.findings.record import Explained, Record, module_words, on_line, short, site
from lab.program.rewrite import LIBRARIES
from lab.records.graph import Node, Pass, Saved, Step
from lab.records.operations import Written


def overwritten_slots(nodes: list[Node] | tuple[Node, ...]) -> list[tuple[Node, Saved]]:
    """Saved tensors whose version counter has moved since they were saved."""
    return [
        (node, saved)
        for node in nodes
        for saved in node.saved
        if saved.saved_version is not None and saved.current_version not in (None, saved.saved_version)
    ]


def describe_slot(node: Node, saved: Saved) -> str:
    """The tensor that a slot holds, in words: "its own output p", "w", "its input self"."""
    if saved.slot.startswith("result"):
        return f"its own output{f' {saved.variable}' if saved.variable else ''}"
    if saved.slot.startswith("ctx.") and not (saved.variable or saved.leaf):
        return f"{saved.slot}, which its forward keeps,"
    if saved.variable or saved.leaf:
        return str(saved.variable or saved.leaf)
    if saved.shape == () and saved.dtype == "float64" and not saved.view_of:
        return "a constant"
    return f"its input {saved.slot}{f', which is {saved.view_of} seen in another shape,' if saved.view_of else ''}"


def failing_slot(record: Record, steps: tuple[Step, ...]) -> tuple[Node, Saved] | None:
    """The overwritten tensor that ended a pass: the engine stopped in the node of its last step."""
    stopped = record.nodes.get(steps[-1].node) if steps and not steps[-1].given else None
    here = overwritten_slots([stopped] if stopped else [])
    if here:
        return here[0]
    return next(iter(overwritten_slots(record.all_nodes)), None)


def explain_overwritten(record: Record, run: Pass, steps: tuple[Step, ...], fails_on: int | None) -> Explained | None:
    """Why a pass found a saved tensor changed."""
    found = failing_slot(record, steps)
    if found is None:
        return None
    node, saved = found
    write = record.write_of(saved)
    line, operation = (write.line, write.operation) if write else (saved.changed_line, saved.changed_by)
    kept = describe_slot(node, saved)
    before, after = f"version {saved.saved_version}", f"version {saved.current_version}"
    text = (
        f"{node.label}{on_line(node.line)}{module_words(node.module)} kept {kept} for its backward at version "
        f"{saved.saved_version}. It was overwritten{_by(write, operation, line)} and is now at {after}, so the kept "
        f"value is gone."
    )
    tensor = saved.variable or saved.leaf or saved.view_of or kept
    sites = (
        site(line, "overwritten here", tensor, before, after)
        + site(node.line, "kept here", tensor)
        + site(fails_on, "fails here", run.call)
    )
    repair, edits = _repair(record, node, saved, write, tensor)
    if edits and edits[0].line not in {s.line for s in sites}:
        role = "made in-place here" if "inplace=True" in edits[0].old else "shares memory from here"
        sites = (*sites[:1], Site(edits[0].line, role), *sites[1:])
    evidence = {
        "node": node.name,
        "saved tensor": kept,
        "version when saved": saved.saved_version,
        "version at backward": saved.current_version,
    }
    return Explained(text, repair, sites, evidence, edits)


def _by(write: Written | None, operation: str, line: int | None) -> str:
    if write is None:
        return f" by {operation}{on_line(line)}" if line else ""
    inside = f", inside {write.caller}()," if write.caller in ("step", "load_state_dict", "clip_grad_norm_") else ""
    return f" by {operation}{on_line(line)}{module_words(write.module)}{inside}"


def _repair(
    record: Record, node: Node, saved: Saved, write: Written | None, tensor: str
) -> tuple[str, tuple[Edit, ...]]:
    if write is None:
        return "Write into a copy (t = t.clone() before the write) or use the out-of-place form.", ()
    if write.caller == "step":
        return (
            f"Call every backward that needs {tensor} before the step{on_line(write.line)}, or run the forward again after it.",
            (),
        )
    here = record.changed(write.line, "inplace=True", "inplace=False")
    if here:
        return f"Use inplace=False{on_line(write.line)}: the result is then a tensor of its own.", here
    if (write.module and write.module != node.module) or (write.module and write.operation.endswith("_")):
        edits = inplace_false(record)
        if edits:
            return f"Use inplace=False in {write.module}, or the out-of-place form there.", edits
    if tensor.endswith((".running_mean", ".running_var", ".num_batches_tracked")):
        return f"Call backward before line {write.line} writes into {tensor}.", ()
    written = written_name(record.source.statement(write.line, _writes)) or write.name
    if written and tensor.isidentifier() and written != tensor:
        return (
            f"{written} shares its memory with {tensor}: make it from a copy, {tensor} = {tensor}.clone().",
            _copied_before(record, written, tensor),
        )
    return rewritten(record, write.line, write.name or tensor)


def inplace_false(record: Record) -> tuple[Edit, ...]:
    """The only ``inplace=True`` of the program switched off."""
    lines = [n for n, text in enumerate(record.lines, 1) if "inplace=True" in text]
    if len(lines) != 1 or record.text(lines[0]).count("inplace=True") != 1:
        return ()
    old = record.text(lines[0])
    return (Edit(lines[0], old, old.replace("inplace=True", "inplace=False")),)


def _copied_before(record: Record, view: str, base: str) -> tuple[Edit, ...]:
    """``base = base.clone()`` before the only line that makes ``view`` of it."""

    def makes(statement: ast.stmt) -> bool:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == view:
                return base in {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
        return False

    found = [s for s in (record.source.statement(n, makes) for n in range(1, len(record.lines) + 1)) if s]
    return record.source.before(found[0], f"{base} = {base}.clone()") if len(set(found)) == 1 else ()


def rewritten(record: Record, line: int | None, name: str) -> tuple[str, tuple[Edit, ...]]:
    """The write on ``line`` in a form that leaves the old memory alone."""
    statement = record.source.statement(line, lambda s: _writes(s) and written_name(s) in (name.split("[")[0], ""))
    statement = statement or record.source.statement(line, _writes)
    if isinstance(statement, ast.AugAssign) or _method(statement) in _HAS_A_PURE_FORM:
        is_item = (
            isinstance(statement, ast.AugAssign) and ast.unparse(statement.target) == name
        )  # of a list, by its name
        new, edits = record.source.out_of_place(statement, items=is_item)
        if edits:
            return f"Make a new tensor: {new}.", edits
    target = written_name(statement)
    if target and statement is not None:
        new = f"{target} = {target}.clone()"
        return f"Write into a copy: {new} before line {line}.", record.source.before(statement, new)
    return f"Write into a copy ({name} = {name}.clone() before the write) or use the out-of-place form.", ()


def _writes(statement: ast.stmt) -> bool:
    """Whether a statement may write into memory that it did not make."""
    subscript = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript)
    return isinstance(statement, ast.AugAssign) or subscript or bool(_method(statement))


def _method(statement: ast.stmt | None) -> str:
    """``add_`` of ``y.add_(x)`` as a statement."""
    match statement:
        case (
            ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)))
            | ast.Assign(value=ast.Call(func=ast.Attribute(attr=name)))
        ) if re.fullmatch(r"[a-z]\w*[a-z0-9]_", name):
            return name
    return ""


_HAS_A_PURE_FORM = {
    name
    for name in dir(torch.Tensor)
    if name.endswith("_") and not name.startswith("_") and callable(getattr(torch.Tensor, name[:-1], None))
} - {"requires_grad_", "detach_", "resize_", "fill_", "index_put_", "set_", "bernoulli_"}


def written_name(statement: ast.stmt | None) -> str:
    """The variable into which a statement writes, by index, by method or by a function such as ``F.relu_``."""
    target: ast.AST | None = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AugAssign):
        target = statement.target
        if isinstance(target, ast.Name):
            return target.id
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called, given = statement.value.func, statement.value.args
        target = called.value if isinstance(called, ast.Attribute) else None
        if isinstance(target, ast.Name) and target.id in LIBRARIES and given:
            target = given[0]
        return target.id if isinstance(target, ast.Name) else ""
    return target.value.id if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) else ""


# Writes that torch refuses at once.


def written_through_data(record: Record) -> Iterator[Finding]:
    """Values kept for backward that were overwritten without a version counter moving: the gradient is of other values."""
    for run, steps in record.own_passes():
        ran = {step.node for step in steps}
        for write in record.result.written:
            if not write.through_data or (write.before == write.after and write.before is not None):
                continue
            for node in (record.nodes[n] for n in sorted(ran)):
                slot = next((s for s in node.saved if s.storage == write.storage and not s.recomputed), None)
                if slot is None or node.moment is None or run.error or not node.moment < write.moment < run.moment:
                    continue
                name = slot.leaf or slot.variable or slot.view_of or write.name or "a saved tensor"
                text = (
                    f"{node.label}{on_line(node.line)} kept {name} for its backward. {write.operation}{on_line(write.line)} overwrote "
                    f"it through .data, which moves no version counter, so {run.call}{on_line(run.line)} used the new values without "
                    f"an error: the gradient is not that of the forward that ran."
                )
                sites = (
                    site(write.line, "overwritten here", name, short(str(write.before)), short(str(write.after)))
                    + site(node.line, "kept here", name)
                    + site(run.line, "used here", run.call)
                )
                repair = "Write after backward, or under torch.no_grad() without .data: then torch notices."
                yield Finding(
                    level="warning", title=f"{name} was overwritten through .data before backward used it", text=text, evidence={"node": node.name},
                    line=write.line, repair=repair, sites=sites,
                )  # fmt: skip
                return
