"""A graph that backward has used and freed, and what still leads into it."""

from __future__ import annotations

import ast

from lab.contract import Edit
from lab.experiments.autograd_graph.findings.in_place import describe_slot
from lab.experiments.autograd_graph.findings.record import Explained, Record, bare, of_line, on_line, site, tensor_words
from lab.records.graph import Node, Pass, Saved, Step


def explain_freed(record: Record, run: Pass, steps: tuple[Step, ...]) -> Explained | None:
    """Why a pass found its graph freed: the engine stopped in the node of its last step."""
    node = record.nodes.get(steps[-1].node) if steps and not steps[-1].given else None
    slot = next((s for s in node.saved if s.freed and s.freed_line), None) if node else None
    if node is None or slot is None:
        node, slot = _any_freed(record)
    if node is None or slot is None:
        return None
    earlier = [p for p in record.result.passes if p.moment < run.moment and not p.error]
    total = _running_total(record, run, earlier[-1]) if earlier else None
    if total is not None:
        return total
    carried = _carried(record, run, node) if slot.freed_line == run.line else None
    if carried is not None:
        again = sum(n.line == carried.line and n.label == carried.label for n in record.all_nodes) > 1
        return (_explain_carried if again else _explain_made_once)(record, run, node, slot, carried)
    kept = describe_slot(node, slot)
    same = any(p is not run and p.root == run.root and p.line == slot.freed_line for p in record.result.passes)
    text = (
        f"{run.call}{on_line(run.line)} needs {node.label}{of_line(node.line)}, which kept {kept}; {slot.freed_by}"
        f"{on_line(slot.freed_line)} used and freed it. "
        + (
            "It is the same graph a second time."
            if same
            else f"Both go back through {node.label}: that part of the graph belongs to both."
        )
    )
    sites = (
        site(slot.freed_line, "freed here", slot.freed_by)
        + site(node.line, "kept here", node.label)
        + site(run.line, "fails here", run.call)
    )
    evidence = {"freed by": slot.freed_by, "node": node.name}
    stepped = next((s.line for s in record.result.steps if (slot.freed_moment or 0) <= s.moment <= run.moment), None)
    repair = "Add the losses and call backward once: what both share is then walked once."
    if same:
        repair = "Call backward once, or run the forward again before the second call. retain_graph=True keeps the graph where both calls are wanted."
    elif stepped:
        repair = f"Run the forward again before {run.call}: the step{on_line(stepped)} has moved the parameters since."
    return Explained(text, repair, sites, evidence, () if same or stepped else _sum(record, slot.freed_line, run.line))


def _any_freed(record: Record) -> tuple[Node | None, Saved | None]:
    for node in record.all_nodes:
        for slot in node.saved:
            if slot.freed and slot.freed_line:
                return node, slot
    return None, None


def _carried(record: Record, run: Pass, freed: Node) -> Node | None:
    """The node through which a pass entered a graph that an earlier pass of the same line had freed."""
    todo, known = [run.root], set()
    while todo:
        node = todo.pop()
        if node is None or node in known:
            continue
        known.add(node)
        here = record.nodes.get(node)
        if here is not None and any(s.freed_moment is not None and s.freed_moment < run.moment for s in here.saved):
            return here
        todo += record.parents.get(node, [])
    return freed


def _running_total(record: Record, run: Pass, before: Pass) -> Explained | None:
    """The root is the root of an earlier pass with something added: its graph contains the one that is freed."""
    root = next((record.made[r] for r in run.roots if r in record.made), None)
    if (
        root is None
        or bare(root.operation) not in ("add", "add_", "iadd", "__iadd__")
        or not set(root.inputs) & set(before.roots)
    ):
        return None
    name = root.name or "the total"
    text = (
        f"{name}{on_line(root.line)} is the {name} of the step before with this step's part added, so its graph contains the one that "
        f"{before.call}{on_line(before.line)} has used and freed; {run.call}{on_line(run.line)} walks into it again."
    )
    sites = site(root.line, "added up here", name) + site(before.line, "freed here", before.call)
    repair = f"Call backward on this step's part alone, or on {name} once, after the loop."
    return Explained(text, repair, sites + site(run.line, "fails here", run.call), {"total": name})


def _explain_carried(record: Record, run: Pass, node: Node, slot: Saved, carried: Node) -> Explained:
    made = record.made.get(carried.state) if carried.state is not None else None
    name = carried.variables[0] if carried.variables else made.name if made else ""
    state, edits = _detached(record, carried.line, name)
    name = name or state or _assigned(record, carried.line)
    words = name or tensor_words(made) if made else name or carried.label
    text = (
        f"{words}{f', made{on_line(carried.line)} in the step before,' if carried.line else ''} leads from this step into the graph of the "
        f"one before. {slot.freed_by or run.call}{on_line(slot.freed_line)} used and freed that graph, and {run.call}"
        f"{on_line(run.line)} walks into it again."
    )
    sites = (
        site(carried.line, "carried over from here", words)
        + site(slot.freed_line, "freed here", slot.freed_by)
        + site(run.line, "fails here", run.call)
    )
    cut = edits[0].new.strip().partition("\n")[0] if edits and state else f"{name} = {name}.detach()"
    repair = "Detach what is carried from one step to the next, before it is used again."
    if name:
        repair = f"Cut it between the steps: {cut if '; ' not in cut else f'{name} = {name}.detach()'} before it is used again."
    return Explained(text, repair, sites, {"carried": words, "node": node.name}, edits)


def _explain_made_once(record: Record, run: Pass, node: Node, slot: Saved, carried: Node) -> Explained:
    """What several passes of one line go back through was computed once, before them."""
    name = carried.variables[0] if carried.variables else carried.label
    text = (
        f"{run.call}{on_line(run.line)} goes back through {name}{of_line(carried.line)}, which was computed once. The call before it on "
        f"the same line used and freed what {node.label}{of_line(node.line)} kept."
    )
    sites = (
        site(slot.freed_line, "freed here", slot.freed_by)
        + site(carried.line, "computed once here", name)
        + site(run.line, "fails here", run.call)
    )
    repair = f"Compute {name} again before each call; or add the losses and call backward once."
    return Explained(text, repair, sites, {"shared": name, "node": node.name})


def _assigned(record: Record, line: int | None) -> str:
    """The one attribute or entry that the line gives a value to; plain names are known from the run."""
    match record.statement(line):
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target]):
            return ast.unparse(target)
    return ""


def _detached(record: Record, line: int | None, name: str) -> tuple[str, tuple[Edit, ...]]:
    """(what is carried, ``h, c = h.detach(), c.detach()`` before the line that makes the next one out of it)."""

    def carried(statement: ast.stmt) -> list[str]:
        if not isinstance(statement, ast.Assign):
            return []
        stored, read = (
            [ast.unparse(n) for n in ast.walk(part) if isinstance(n, (ast.Name, ast.Attribute))]
            for part in (statement.targets[0], statement.value)
        )
        return [n for n in stored if n in read and n != "self"]

    statement = record.source.statement(line, lambda s: bool(carried(s)))
    names = carried(statement) if statement else []
    if statement is None or (name and name not in names):
        return "", ()
    begins = [s.value for n in names for s in record.source.given_to(n, line or 0) if isinstance(s, ast.Assign)]
    empty = any(isinstance(value, ast.Constant) and value.value is None for value in begins)
    cut = [f"{n}.detach() if {n} is not None else None" if empty else f"{n}.detach()" for n in names]
    new = f"{', '.join(names)} = {', '.join(cut)}"
    return ", ".join(names), record.source.before(statement, new)


def _sum(record: Record, first: int | None, second: int | None) -> tuple[Edit, ...]:
    """Two calls of backward as one on the sum."""
    source = record.source
    one, two = (source.statement(line, lambda s: bool(_root_of(s))) for line in (first, second))
    if one is None or two is None or one is two or not source.are_beside(one, two):
        return ()
    between = [e.line for e in (*record.result.steps, *record.result.cleared)]
    if any(line and one.lineno <= line <= two.lineno for line in between):
        return ()  # each belongs to a step of its own
    gone = source.removed(one)
    root = _root_of(two)
    if root is None or not gone:
        return ()
    return (*gone, *source.exchanged(root, f"({source.text(_root_of(one) or one)} + {source.text(root)})"))


def _root_of(statement: ast.stmt) -> ast.expr | None:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=root, attr="backward"), args=[])):
            return root
    return None


def explain_saved_gone(record: Record, line: int | None) -> Explained | None:
    """Something other than a pass asked for saved tensors after backward had freed them."""
    node, slot = _any_freed(record)
    if node is None or slot is None:
        return None
    asked = "make_dot" if "make_dot" in record.text(line) else "this line"
    text = (
        f"{slot.freed_by}{on_line(slot.freed_line)} freed what {node.label}{of_line(node.line)} kept, and {asked}{on_line(line)} "
        f"reads saved tensors. No second backward is involved."
    )
    sites = (
        site(slot.freed_line, "freed here", slot.freed_by)
        + site(line, "fails here", asked)
        + site(node.line, "kept here", node.label)
    )
    return Explained(text, f"Read or draw it before line {slot.freed_line}.", sites, {"freed by": slot.freed_by})
