"""Leaves without a gradient: names that are no leaf any more, results read for .grad, leaves that nothing used."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.contract import Edit, Finding
from lab.experiments.autograd_graph.findings.record import (
    Explained,
    Record,
    bare,
    on_line,
    site,
    words,
)
from lab.records.graph import Cut, Named


def result_read_for_grad(record: Record) -> Iterator[Finding]:
    """``.grad`` read from a tensor that is a result."""
    asked = next((w for w in record.result.warned if "not a leaf Tensor" in w.text), None)
    if not asked:
        return
    named = read_for_grad(record, asked.line)
    first = named[0] if named else None
    where = f" {first.name} is the result of {_operation_of(record, first)}{on_line(first.line)}." if first else ""
    node = record.nodes.get(first.node) if first and first.node is not None else None
    passed = f" Its gradient was {words(node.grad)}." if node and node.grad is not None else ""
    run = next((p for p in record.result.passes if p.by == "program" and p.line and not p.error), None)
    name = first.name if first else "the tensor"
    text = f".grad is filled for leaves only, and reading it from a result gives None and a warning.{where}{passed}"
    sites = site(asked.line, "read here", name) + site(first.line if first else None, "result since here", name)
    sites += site(run.line if run else None, "passed through here", name)
    born = bool(first and re.search(r"requires_grad=True\)\s*[.*+/-]", record.text(first.line)))
    repair = (
        f"The leaf behind {name} has no name: make the tensor first, then call requires_grad_() on what is to be trained."
        if born
        else f"Call retain_grad() on {name} before backward, or make the leaf last."
    )
    edits: tuple[Edit, ...] = ()
    if (
        first
        and not born
        and run
        and run.line
        and first.name.isidentifier()
        and re.match(r"\s*[\w.()]+\.backward\(", record.text(run.line))
    ):
        edits = record.inserted(run.line, f"{first.name}.retain_grad()")
    evidence = {"results without .grad": sum(not t.is_leaf for t in record.result.tensors)}
    yield Finding(
        level="surprise", title=".grad of a result is None", text=text, evidence=evidence, line=asked.line,
        repair=repair, sites=sites, edits=edits,
    )  # fmt: skip


def read_for_grad(record: Record, line: int | None) -> list[Named]:
    """Results whose ``.grad`` the text of ``line`` reads."""
    names = set(re.findall(r"([A-Za-z_][\w.\[\]]*)\.grad\b", record.text(line)))
    return [t for t in record.result.tensors if t.name in names and not t.is_leaf]


def _operation_of(record: Record, named: Named) -> str:
    node = record.nodes.get(named.node) if named.node is not None else None
    return node.label if node else re.sub(r"Backward\d*$", "", named.grad_fn) or "an operation"


def explain_none_gradient(record: Record, message: str, line: int | None) -> Explained | None:
    """An error about None on a line that reads ``.grad``."""
    if "NoneType" not in message or ".grad" not in record.text(line):
        return None
    moved = read_for_grad(record, line)
    if moved:
        named = moved[0]
        text = (
            f"{named.name} is a result since line {named.line}: the leaf that got the gradients has no name any more, and .grad of a "
            f"result is None."
        )
        sites = site(named.line, "name moves to a result here", named.name) + site(
            line, "fails here", f"{named.name}.grad"
        )
        edits = record.source.in_place(record.statement(named.line), named.name)
        repair = f"Change the leaf in place: with torch.no_grad(): {named.name} -= ..."
        return Explained(text, repair, sites, {"is leaf": False, "node": named.grad_fn}, edits)
    cleared = [c for c in record.result.cleared if c.line]
    if cleared:
        last = cleared[-1]
        by = f"{last.caller}()" if last.caller else "= None"
        text = f"{by}{on_line(last.line)} set .grad of {last.leaf} to None, and line {line} reads it afterwards."
        sites = site(last.line, "cleared here", f"{last.leaf}.grad") + site(line, "fails here", ".grad")
        return Explained(text, "Read .grad between backward and zero_grad.", sites, {"cleared": len(cleared)})
    return None


def unused_leaves(record: Record) -> Iterator[Finding]:
    """Leaves that require gradients and got none although a backward pass ran."""
    result = record.result
    ran = [run for run, _ in record.own_passes() if run.by == "program" and not run.error and run.inputs is None]
    if not ran or result.fault or any(run.inputs is not None for run in result.passes):
        return
    used = {name for node in record.all_nodes if node.kind == "leaf" for name in node.variables}
    cleared = {c.leaf for c in result.cleared}
    missing = [
        t
        for t in result.tensors
        if t.requires_grad and t.is_leaf and t.grad is None and t.name not in used and t.name not in cleared
    ]
    missing += _of_functions(record, {t.name for t in result.tensors} | used | cleared)
    if not missing:
        return
    cut = _cut_after(record, missing[0])
    missing = [t for t in missing if _cut_after(record, t) == cut]  # one cause at a time
    names = ", ".join(t.name for t in missing[:4]) + ("…" if len(missing) > 4 else "")
    one = len(missing) == 1
    held = {p for step in result.steps for p in step.parameters}
    averaged = {w.name for w in result.written if not w.grad_enabled and not w.caller}
    if result.steps and all(t.name in averaged and t.name not in held for t in missing):
        return  # a copy that the program updates by hand, such as a moving average
    if cut and cut.reason in ("no_grad", "inference_mode") and not any(t.name in held for t in missing):
        return  # a network that is only read, such as a target or a teacher
    if cut and cut.reason == "detach" and result.steps and not any(t.name in held for t in missing):
        return  # the optimizer trains others: a target network, or features that stay as they are
    line = cut.line if cut else missing[0].line
    if cut:
        anew = ", and a new leaf starts there" if cut.reason == "copy" and cut.target else ""
        text = (
            f"{names} require{'s' if one else ''} gradients and {'was' if one else 'were'} used, but {_called(cut)}{on_line(cut.line)} took "
            f"{'it' if one else 'them'} out of the graph{anew}: no way leads from the result back to {'it' if one else 'them'}, so .grad stays None."
        )
    else:
        text = f"{names} require{'s' if one else ''} gradients, but no operation on the way to the result used {'it' if one else 'them'}, so .grad stays None."
    sites = (site(cut.line, "cut here", cut.source) if cut else ()) + site(
        missing[0].line, "born here", missing[0].name
    )
    yield Finding(
        level="warning", title=f"{names}: .grad is None", text=text, evidence={"leaves without a gradient": len(missing)}, line=line,
        repair=_kept(cut) if cut else "Use the tensor in the loss, or leave it out of the optimizer.", sites=sites,
    )  # fmt: skip


def _of_functions(record: Record, known: set[str]) -> list[Named]:
    """Leaves that had a name while a function ran, and that no pass of the program came to."""
    if record.result.passes_cut:
        return []
    leaves = {m.name: m for m in record.result.made if m.is_leaf and m.requires_grad and m.name and m.name not in known}
    return [Named(m.name, m.shape, m.dtype, "", True, True, None, None, "", m.line, False) for m in leaves.values()]


def _kept(cut: Cut) -> str:
    if cut.reason in ("no_grad", "inference_mode"):
        return "Compute what is to be trained with gradients on."
    return f"Keep the tensor itself on the way to the loss, without {_called(cut)}."


def _called(cut: Cut) -> str:
    """ "torch.tensor", "detach()", "linear"."""
    if cut.operation in ("tensor", "as_tensor", "asarray"):
        return f"torch.{cut.operation}"
    return (
        f"{cut.operation}()" if cut.reason in ("detach", "leaves torch") and cut.operation.isalpha() else cut.operation
    )


def _cut_after(record: Record, leaf: Named) -> Cut | None:
    """The cut that the leaf, or a result of it, went through: also a copy that is a leaf of its own."""
    for made in record.result.made:
        copied = bare(made.operation) in ("tensor", "as_tensor", "asarray", "new_tensor")
        if (
            copied
            and made.is_leaf
            and made.requires_grad
            and any(m.is_leaf and m.name == leaf.name for m in record.behind(made.inputs))
        ):
            return Cut(
                bare(made.operation), "copy", made.line, leaf.name, made.name, made.module, True, None, made.state, made.inputs[0]
            )  # fmt: skip
    for cut in record.result.cuts:
        behind = record.behind([cut.source_state]) if cut.source_state is not None else ()
        if cut.source == leaf.name or any(m.is_leaf and m.name == leaf.name for m in behind):
            return cut
    return None
