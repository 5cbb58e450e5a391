"""In-place writes: what kept the tensor, what wrote into it, and what fails for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from lab.contract import Edit, Finding, Site
from lab.experiments.autograd_graph.findings.record import Explained, Record, module_words, on_line, short, site
from lab.records.graph import Node, Pass, Saved, Step
from lab.records.operations import Operand, Refused, Written


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
        sites = (Site(edits[0].line, "made in-place here"), *sites)
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
    if (write.module and write.module != node.module) or (write.module and write.operation.endswith("_")):
        edits = inplace_false(record)
        if edits:
            return f"Use inplace=False in {write.module}, or the out-of-place form there.", edits
    if write.name and saved.variable and write.name != saved.variable:
        return (
            f"{write.name} shares its memory with {saved.variable}: write into a copy, {write.name}.clone(), or make the new {saved.variable} with torch.cat.",
            (),
        )
    return rewritten(record, write.line, write.name or tensor)


def inplace_false(record: Record) -> tuple[Edit, ...]:
    """The only ``inplace=True`` of the program switched off."""
    lines = [n for n, text in enumerate(record.lines, 1) if "inplace=True" in text]
    if len(lines) != 1 or record.text(lines[0]).count("inplace=True") != 1:
        return ()
    old = record.text(lines[0])
    return (Edit(lines[0], old, old.replace("inplace=True", "inplace=False")),)


def rewritten(record: Record, line: int | None, name: str) -> tuple[str, tuple[Edit, ...]]:
    """The write on ``line`` in a form that leaves the old memory alone."""
    text, statement = record.text(line).strip(), record.statement(line)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        target, value = statement.target.id, ast.get_source_segment(text, statement.value) or ""
        symbol = text[len(target) :].lstrip().partition("=")[0].strip()
        wrapped = value if isinstance(statement.value, (ast.Name, ast.Constant, ast.Call)) else f"({value})"
        new = f"{target} = {target} {symbol} {wrapped}"
        return f"Make a new tensor: {new}.", record.replaced(line, new)
    if (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and isinstance(statement.value.func.value, ast.Name)
        and re.fullmatch(r"[a-z]\w*[a-z0-9]_", statement.value.func.attr)
        and statement.value.func.attr
        not in ("copy_", "fill_", "zero_", "requires_grad_", "index_put_", "normal_", "uniform_")
    ):
        target, method = statement.value.func.value.id, statement.value.func.attr
        new = f"{target} = {text.replace(f'.{method}(', f'.{method[:-1]}(', 1)}"
        return f"Make a new tensor: {new}.", record.replaced(line, new)
    target = _written_name(statement)
    if target:
        new = f"{target} = {target}.clone()"
        return f"Write into a copy: {new} before line {line}.", record.inserted(line, new)
    return f"Write into a copy ({name} = {name}.clone() before the write) or use the out-of-place form.", ()


def _written_name(statement: ast.stmt | None) -> str:
    """The variable into which a statement writes by index or by method."""
    target: ast.AST | None = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AugAssign):
        target = statement.target
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        target = called.value if isinstance(called, ast.Attribute) else None
        return target.id if isinstance(target, ast.Name) else ""
    return target.value.id if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) else ""


# Writes that torch refuses at once.


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
    new = f"with torch.no_grad():\n    {record.text(refused.line).strip()}"
    repair = "Edit it inside `with torch.no_grad():`, or compute a new tensor: w = w - lr * g."
    return Explained(text, repair, sites, {"written": name, "is leaf": True}, record.replaced(refused.line, new))


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
    new = f"with torch.no_grad():\n    {record.text(refused.line).strip()}"
    repair = "Edit parameters inside `with torch.no_grad():`."
    return Explained(text, repair, sites, {"written": leaf, "is leaf": True}, record.replaced(refused.line, new))


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
        if _written_name(written) in named and re.match(r"\s*\w+\.[a-z]\w*_\(", record.text(line)):
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
