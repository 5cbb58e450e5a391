"""Hooks that the program put on tensors: which changed the gradient, and on which node they sit."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.autograd_graph.findings.record import Record, on_line, site, words
from lab.records.operations import Hook


def hooks(record: Record) -> Iterator[Finding]:
    """Hooks of the program on tensors: which changed the gradient, in order; and two versions of one tensor."""
    put = [h for h in record.result.hooks if h.kind == "register_hook" and h.calls]
    changing = [h for h in put if h.changed]
    if changing:
        yield _changed(record, put, changing)
        return
    moved = _two_nodes(record)
    if moved:
        yield moved


def grad_read_in_module_hook(record: Record) -> Iterator[Finding]:
    """A full backward hook that reads ``.grad``, in a pass that stored the gradients of leaves after it had run."""
    hooks = set(_module_hooks(record))
    bodies = (
        [n for n in ast.walk(record.tree) if isinstance(n, ast.FunctionDef) and n.name in hooks] if record.tree else []
    )
    reads = [(b.name, n) for b in bodies for n in ast.walk(b) if isinstance(n, ast.Attribute) and n.attr == "grad"]
    for run, steps in record.own_passes():
        labels = [record.nodes[s.node].name for s in steps]
        stored = [i for i, s in enumerate(steps) if s.after is not None]
        ran = [i for i, label in enumerate(labels) if label.startswith("BackwardHookFunction")]
        if not reads or not ran or not stored or run.error or min(stored) < max(ran):
            continue
        leaf = record.nodes[steps[stored[0]].node].label
        text = (
            f"{reads[0][0]} on line {reads[0][1].lineno} reads .grad inside a full backward hook. In {run.call}{on_line(run.line)} the hook ran in step {max(ran) + 1}, "
            f"and {leaf}.grad was stored in step {min(stored) + 1}: the hook sees what was there before."
        )
        yield Finding(
            level="surprise",
            title="A full backward hook runs before .grad is stored",
            text=text,
            evidence={"hook in step": max(ran) + 1, "stored in step": min(stored) + 1},
            line=reads[0][1].lineno,
            repair="Use register_post_accumulate_grad_hook on the parameter, or the grad_output that the hook is given.",
            sites=site(reads[0][1].lineno, "read too early here", ".grad")
            + site(run.line, "backward runs here", run.call),
        )
        return


def _module_hooks(record: Record) -> Iterator[str]:
    """Names of the functions that the program put as full backward hooks."""
    for node in ast.walk(record.tree) if record.tree else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="register_full_backward_hook"), args=[ast.Name(id=name), *_]):
                yield name


def _changed(record: Record, put: list[Hook], changing: list[Hook]) -> Finding:
    first = changing[0]
    same = [h for h in put if h.name == first.name and h.node == first.node] or changing
    parts = [
        f"line {h.line}: {words(h.calls[-1][0])} in, {words(h.calls[-1][1])} out"
        if h.changed
        else f"line {h.line}: saw {words(h.calls[-1][0])}"
        for h in same[:4]
    ]
    lines = {h.line for h in changing}
    several = len(changing) > 1 and len(lines) == 1
    name = first.name or "a tensor"
    text = f"Hooks on {name} run in the order in which they were put: {'; '.join(parts)}."
    if several:
        text = f"{name} has {len(changing)} hooks, all put{on_line(first.line)}: each pass runs every one of them. The last time {words(changing[0].calls[-1][0])} became {words(changing[-1].calls[-1][1])}."
    retained = next((h for h in record.result.hooks if h.kind == "retain_grad" and h.node == first.node), None)
    if retained:
        text += (
            f" retain_grad{on_line(retained.line)} records last, after all hooks: {words(changing[-1].calls[-1][1])}."
        )
    sites = tuple(
        s
        for h in changing[:3]
        for s in site(h.line, "gradient changed here", name, words(h.calls[-1][0]), words(h.calls[-1][1]))
    )
    sites = tuple(dict.fromkeys(sites))
    evidence = {"in": words(first.calls[-1][0]), "out": words(changing[-1].calls[-1][1]), "hooks": len(same)}
    repair = (
        "Register it once, before the loop, or keep the handle and remove() it."
        if several
        else "Leave the hook out to get the plain gradient."
    )
    level = "warning" if several else "surprise"
    return Finding(
        level=level,
        title=f"A hook changes the gradient of {name}",
        text=text,
        evidence=evidence,
        line=first.line,
        repair=repair,
        sites=sites,
    )


def _two_nodes(record: Record) -> Finding | None:
    """Hooks on one name before and after an in-place write: they sit on different nodes."""
    for before in record.result.hooks:
        for after in record.result.hooks:
            if (
                before.moment >= after.moment
                or before.node == after.node
                or before.name != after.name
                or not before.name
            ):
                continue
            write = next(
                (
                    w
                    for w in record.result.written
                    if w.name == before.name and before.moment <= w.moment <= after.moment
                ),
                None,
            )
            if write is None or not before.calls or not after.calls:
                continue
            old, new = words(before.calls[-1][0]), words(after.calls[-1][0])
            text = (
                f"{write.operation}{on_line(write.line)} gave {before.name} a second node. The hook{on_line(before.line)} stays on the first and saw {old}; "
                f"the hook{on_line(after.line)} sits on the second and saw {new}."
            )
            sites = (
                site(write.line, "second node from here", before.name, old, new)
                + site(before.line, "hook on the first node")
                + site(after.line, "hook on the second node")
            )
            return Finding(
                level="surprise",
                title=f"A hook stays on the old {before.name}",
                text=text,
                evidence={"first node": old, "second node": new},
                line=write.line,
                repair="Put hooks after the last in-place write.",
                sites=sites,
            )
    return None
