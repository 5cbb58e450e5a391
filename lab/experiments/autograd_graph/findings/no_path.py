"""Gradients that cannot arrive: no graph, a cut on the way, an input that is not on the way, a name that is no leaf any more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from lab.contract import Edit, Finding, Site
from lab.experiments.autograd_graph.findings.custom import once_line
from lab.experiments.autograd_graph.findings.record import (
    Explained,
    Record,
    bare,
    flat,
    module_words,
    on_line,
    site,
    tensor_words,
)
from lab.records.graph import Cut, Pass
from lab.records.operations import Custom, Made, Refused

_COPIES = ("tensor", "as_tensor", "asarray", "from_numpy")
OUTSIDE = -1
"""Number of a content that was outside torch."""
_INTEGERS = ("int", "bool")


def break_of(record: Record, states: tuple[int, ...] | list[int]) -> tuple[Made, Made | None] | None:
    """(where the history was lost, what it was lost from) on the way to ``states``, nearest to them."""
    for made in record.behind(states):
        if made.requires_grad or (
            made.is_leaf and made.operation.endswith("_") and made.operation not in ("detach_", "__get__")
        ):
            continue  # a parameter that was initialised or stepped
        source = next((record.made[i] for i in made.inputs if i in record.made and record.made[i].requires_grad), None)
        if source is not None:
            return made, source
        copied = _left_torch(record, made)
        if copied is not None:
            return made, copied
    return None


def _left_torch(record: Record, made: Made) -> Made | None:
    """What a tensor without inputs was built from outside torch: a number or values that a cut had taken out of the graph."""
    elements = flat(made.value)
    if made.inputs or made.operation not in ("", *_COPIES) or not elements:
        return None
    for cut in record.result.cuts:
        left = record.made.get(cut.state) if cut.state is not None else None
        number = flat(cut.number)
        same = (number is not None and set(number) <= set(elements)) or (
            left is not None and flat(left.value) == elements
        )
        if cut.line and same and (made.line is None or cut.line <= made.line):
            source = record.made.get(cut.source_state) if cut.source_state is not None else None
            return Made(
                OUTSIDE, cut.source or (source.name if source else ""), cut.operation, cut.line, cut.module, (), "", True, False, True, False, (), cut.number, False, False,
            )  # fmt: skip
    return None


def why_cut(record: Record, made: Made, source: Made | None) -> tuple[str, str, tuple[Edit, ...]]:
    """(what cut it, what to do, the edit) for an operation whose input required gradients and whose result does not."""
    operation, line = bare(made.operation), made.line
    here = f"{operation}{on_line(line)}{module_words(made.module)}"
    if source is not None and source.state == OUTSIDE:
        begun = here if made.operation else tensor_words(made)
        text = f"{source.operation}(){on_line(source.line)} took the values out of the graph, and {begun} starts anew from them"
        return text, "Keep the tensor itself on the way to the loss.", _kept_in_torch(record, source, made)
    if operation in ("detach", "data", "detach_"):
        return (
            f"{here} gives the values without the history",
            "Keep the tensor itself on the way to the loss.",
            _unwrapped(record, line, ".detach()" if operation == "detach" else ".data"),
        )
    if operation in _COPIES:
        return (
            f"{here} copies the values and leaves the history behind",
            "Keep the tensor itself.",
            _uncopied(record, line),
        )
    if operation in ("grad", "backward") and made.grad_enabled:
        call = _call_of_grad(record, line)
        once = _once_on(record, made)
        if call is not None and any(k.arg == "create_graph" for k in call.keywords):
            if once is None:
                return (
                    f"{here} returned a gradient without history",
                    "Compute it from tensors that require gradients.",
                    (),
                )
            text = f"{once.name}.backward is marked once_differentiable{on_line(once_line(record, once))}: the gradient that {here} returned has no history"
            repair = "Write backward with differentiable operations on saved tensors and remove once_differentiable."
            return text, repair, ()
        last = [*call.args, *(k.value for k in call.keywords)][-1:] if call else []
        ends = [(v.end_lineno or 0, v.end_col_offset or 0) for v in last]
        edits = record.source.spans(*((n, column, column, ", create_graph=True") for n, column in ends))
        return (
            f"{here} was called without create_graph, so the gradient that it returned has no history",
            "Call it with create_graph=True where the gradient is differentiated again.",
            edits,
        )
    if made.inference:
        return f"{here} ran in inference mode", "Compute what is to be trained outside the mode.", ()
    if not made.grad_enabled:
        switch = _switched_off(record, made)
        where = f", switched off{on_line(switch)}" if switch and switch != line else ""
        return (
            f"{here} ran with gradients switched off (no_grad){where}",
            "Compute what is to be trained with gradients on.",
            (),
        )
    if made.dtype.startswith(_INTEGERS) or made.dtype.startswith("uint"):
        what = "an index" if operation in ("argmax", "argmin", "argsort", "multinomial") else f"{made.dtype} numbers"
        return (
            f"{here} gives {what}, which have no derivative".replace("an index, which have", "an index, which has"),
            ("Use an operation with a slope: softmax or gather instead of an index, sigmoid instead of a comparison."),
            (),
        )
    return f"{here} gives a result without history", "Keep the tensor itself on the way to the loss.", ()


def _once_on(record: Record, made: Made) -> Custom | None:
    """The custom function that gave a gradient without history although ``create_graph`` asked for one."""
    call = _call_of_grad(record, made.line) if bare(made.operation) in ("grad", "backward") else None
    if call is None or not any(k.arg == "create_graph" for k in call.keywords):
        return None
    return next((c for c in record.result.custom if c.once_differentiable and c.by_program), None)


def _call_of_grad(record: Record, line: int | None) -> ast.Call | None:
    statement = record.statement(line)
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)] if statement else []
    return next((c for c in calls if ast.unparse(c.func).rpartition(".")[2] in ("grad", "backward")), None)


def _switched_off(record: Record, made: Made) -> int | None:
    before = [
        m for m in record.result.modes if not m.enabled and made.line and m.line and m.moment <= (made.moment or 0)
    ]
    return before[-1].line if before else None


def _unwrapped(record: Record, line: int | None, call: str) -> tuple[Edit, ...]:
    text = record.text(line)
    return (Edit(line, text, text.replace(call, "")),) if line and text.count(call) == 1 else ()


def _kept_in_torch(record: Record, source: Made, made: Made) -> tuple[Edit, ...]:
    """``item()`` left out, and ``torch.tensor`` of its numbers replaced by the tensor, or by a stack of the tensors."""
    first = _unwrapped(record, source.line, ".item()") if source.operation == "item" else ()
    text = record.text(made.line)
    several = bool(flat(made.value)) and len(made.shape) == 1
    second = _uncopied(record, made.line) if not several else ()
    if several and made.line and text.count("torch.tensor(") == 1:
        second = (Edit(made.line, text, text.replace("torch.tensor(", "torch.stack(")),)
    return (*first, *second) if first and second and source.line != made.line else ()


def _uncopied(record: Record, line: int | None) -> tuple[Edit, ...]:
    """``torch.tensor(t)`` replaced by ``t``."""
    statement = record.statement(line)
    for node in ast.walk(statement) if statement else ():
        if (
            isinstance(node, ast.Call)
            and len(node.args) == 1
            and not node.keywords
            and ast.unparse(node.func) in ("torch.tensor", "torch.as_tensor")
        ):
            if isinstance(node.args[0], (ast.List, ast.ListComp)):
                return record.source.exchanged(node.func, "torch.stack")
            return record.source.exchanged(node, record.source.text(node.args[0]))
    return ()


def explain_no_graph(
    record: Record, states: tuple[int, ...] | list[int], what: str, fails_on: int | None, call: str
) -> Explained:
    """Why a tensor has no graph, from the operations that led to it."""
    found = break_of(record, states)
    if found is None:
        return _nothing_required(record, states, what, fails_on, call)
    made, source = found
    text, repair, edits = why_cut(record, made, source)
    name = tensor_words(made)
    lost = f" {source.name}" if source is not None and source.name else ""
    follow = f", so {what} has no graph" if what else ""
    sites: tuple[Site, ...] = ()
    if source is not None and source.state == OUTSIDE:
        sites = site(source.line, "cut here", source.name)
    else:
        switch = None if made.grad_enabled or made.inference else _switched_off(record, made)
        once = _once_on(record, made)
        sites = site(once_line(record, once), "cut here", once.name) if once else ()
        role = "used here" if once else "cut here"
        sites += site(made.line, role, made.name or lost.strip(), "requires gradients", "no history")
        sites += site(switch, "gradients off from here") if switch != made.line else ()
    sites += site(made.line, "starts anew here", name) if source is not None and source.state == OUTSIDE else ()
    sites += site(fails_on, "fails here", call) if fails_on and fails_on != made.line else ()
    evidence = {
        "operation": bare(made.operation),
        "from": (source.name if source else "") or "a result",
        "to": made.name or "a result",
    }
    return Explained(f"{text}{follow}.", repair, sites, evidence, edits)


def _nothing_required(
    record: Record, states: tuple[int, ...] | list[int], what: str, fails_on: int | None, call: str
) -> Explained:
    """No tensor behind ``states`` requires gradients."""
    leaves = [m for m in record.behind(states) if not m.inputs and m.dtype.startswith(("float", "bfloat", "complex"))]
    off = next((m for m in record.behind(states) if m.inputs and not m.grad_enabled), None)
    if off is not None and any(t.requires_grad for t in record.result.tensors):
        text, repair, _ = why_cut(record, off, None)
        sites = site(_switched_off(record, off) or off.line, "gradients off from here") + site(
            off.line, "cut here", off.name
        )
        return Explained(
            f"{text}, so {what} has no graph.",
            repair,
            sites + site(fails_on, "fails here", call),
            {"operation": bare(off.operation)},
        )
    parameters = {t.name for t in record.result.tensors if t.is_parameter and not t.requires_grad}
    frozen = list({m.name: m for m in record.behind(states) if m.name in parameters}.values())
    born = [m for m in leaves if m.operation and m.line and m.name] or [m for m in leaves if m.operation and m.line]
    if not frozen and (outside := _by_way_of_python(record, leaves)) is not None:
        cut, back = outside
        text = f"{cut.operation}(){on_line(cut.line)} took the values out of the graph, and {tensor_words(back) if back.name or back.operation else 'another tensor'}{on_line(back.line)} starts anew from what was made of them"
        sites = site(cut.line, "cut here", cut.source) + site(back.line, "starts anew here", tensor_words(back))
        return Explained(
            f"{text}, so {what} has no graph.", "Compute with tensors on the way to the loss, not with NumPy or Python numbers.",
            sites + site(fails_on, "fails here", call), {"operation": cut.operation},
        )  # fmt: skip
    if frozen:
        names = ", ".join(m.name for m in frozen[:3])
        where = [
            n
            for n, t in enumerate(record.lines, 1)
            if "requires_grad_(False)" in t or re.search(r"requires_grad\s*=\s*False", t)
        ]
        text = f"{names} {'has' if len(frozen) == 1 else 'have'} requires_grad=False, and no other tensor behind {what} requires gradients: {what} has no graph."
        return Explained(
            text,
            "Leave requires_grad on for what is to be trained.",
            site(where[0] if where else None, "frozen here", names) + site(fails_on, "fails here", call),
            {"frozen": len(frozen)},
        )
    named = ", ".join(f"{m.name} (line {m.line})" for m in born[:3] if m.name)
    where = f" It was made from {named}." if named else ""
    text = f"{what} has no graph: no tensor that it was made from requires gradients.{where}"
    sites = tuple(s for m in born[:2] for s in site(m.line, "born without requires_grad", m.name)) + site(
        fails_on, "fails here", call
    )
    repair = f"Create what is to be trained with requires_grad=True{f', such as {born[0].name}' if born and born[0].name else ''}."
    return Explained(text, repair, sites, {"leaves that require gradients": 0})


def _by_way_of_python(record: Record, leaves: list[Made]) -> tuple[Cut, Made] | None:
    """(the cut, the tensor made of its values): the name that the later line reads was computed from what the earlier gave."""
    cuts = {c.line: c for c in record.result.cuts if c.line}
    for made in (m for m in leaves if m.operation in ("", *_COPIES)):
        line = made.line or next((m.line for m in record.result.made if made.state in m.inputs and m.line), 0)
        reads = record.source.reads(line)
        seen: set[str] = set()
        while reads - seen:
            name = (reads - seen).pop()
            seen.add(name)
            given = record.source.given_to(name, line)
            reads |= {n for s in given for n in record.source.reads(s.lineno)}
            cut = next((cuts[s.lineno] for s in given if s.lineno in cuts), None)
            if cut is not None:
                return cut, replace(made, line=line or None)
    # Through a function the names do not tell; the only tensor that left torch does.
    left = [c for c in record.result.cuts if c.line and re.search(r"numpy\(|tolist\(|np\.", record.text(c.line))]
    strangers = [m for m in leaves if not m.operation and m.line is None]
    if len(left) == 1 and len(record.result.cuts) == 1 and strangers:
        user = next((m.line for m in record.result.made if strangers[0].state in m.inputs and m.line), None)
        return left[0], replace(strangers[0], line=user)
    return None


def explain_refused_backward(record: Record, refused: Refused) -> Explained:
    """``backward`` or ``grad`` on tensors that have no graph."""
    filled = _gradient_without_graph(record, refused)
    if filled is not None:
        return filled
    operands = [o for o in refused.operands if not o.requires_grad] or list(refused.operands)
    states = [operand.state for operand in operands]
    what = next((o.name for o in operands if o.name), "") or next(
        (o.made_by for o in operands if o.made_by), "the tensor"
    )
    return explain_no_graph(record, states, what, refused.line, refused.operation)


def _gradient_without_graph(record: Record, refused: Refused) -> Explained | None:
    """``.grad`` differentiated again, which backward filled without ``create_graph``."""
    read = re.findall(r"([A-Za-z_][\w.]*)\.grad\b", record.text(refused.line))
    leaf = next((t for t in record.result.tensors if t.name in read and t.is_leaf and t.grad is not None), None)
    passes = [run for run, _ in record.own_passes() if run.by == "program" and not run.error and run.inputs is None]
    if leaf is None or not passes or any(run.create_graph for run in passes):
        return None
    run, name = passes[-1], leaf.name
    text = f"{run.call}{on_line(run.line)} filled {name}.grad without create_graph, so {name}.grad has no history, and line {refused.line} differentiates it."
    sites = site(run.line, "cut here", f"{name}.grad") + site(refused.line, "fails here", refused.operation)
    repair = "Take the first derivative with torch.autograd.grad(..., create_graph=True), and differentiate that."
    return Explained(
        text,
        repair,
        sites,
        {"create_graph": False},
        record.changed(run.line, ".backward()", ".backward(create_graph=True)"),
    )


def missing_graph(record: Record) -> Iterator[Finding]:
    """``loss`` has no graph although gradients were asked for and no pass ran."""
    result = record.result
    if not result.no_graph or result.loss_state is None or result.fault or not result.asks_for_gradients:
        return
    if any(run.by == "program" for run in result.passes):
        return
    found = break_of(record, [result.loss_state])
    if found is None:
        return
    made, _ = found
    deliberate = not made.grad_enabled or made.inference
    why = explain_no_graph(record, [result.loss_state], "loss", None, "")
    yield Finding(
        level="surprise" if deliberate else "warning", title="No graph", text=why.text, evidence={"nodes": len(result.nodes), **why.evidence},
        line=why.sites[0].line if why.sites else None, repair=why.repair, sites=why.sites, edits=why.edits,
    )  # fmt: skip


def explain_unused_input(record: Record, run: Pass, message: str) -> Explained | None:
    """``autograd.grad`` for a tensor that is not on the way to the roots."""
    number = re.search(r"index (\d+)", message)
    states = run.input_states
    if not states:
        return None
    behind_root = {m.state for m in record.behind(run.roots)}
    off = next((state for state in states if state not in behind_root), states[0])  # some releases give no index
    asked = record.made.get(states[int(number.group(1))] if number and int(number.group(1)) < len(states) else off)
    if asked is None:
        return None
    name = tensor_words(asked)
    shared = next((m for m in record.behind([asked.state]) if m.state in behind_root and m.state != asked.state), None)
    once = next((c for c in record.result.custom if c.once_differentiable and c.by_program), None)
    if asked.state in behind_root and once is not None:
        text = (
            f"{once.name}.backward is marked once_differentiable{on_line(once_line(record, once))}: the gradient that it returned has no history, "
            f"so there is no path from it back to {name}. torch says that {name} was not used."
        )
        sites = site(once_line(record, once), "cut here", once.name) + site(run.line, "fails here", run.call)
        return Explained(
            text,
            "Write backward with differentiable operations on saved tensors and remove once_differentiable.",
            sites,
            {"Function": once.name},
        )
    if shared is not None and asked.line:
        user = next((m for m in record.behind(run.roots) if shared.state in m.inputs), None)
        text = (
            f"There is no path from {name} to the result: {name} was made from {tensor_words(shared)}{on_line(asked.line)}, and the result was computed from "
            f"{tensor_words(shared)} itself{on_line(user.line if user else None)}, not from {name}."
        )
        sites = site(asked.line, "made here, off the path", name) + site(
            user.line if user else None, "used here instead", tensor_words(shared)
        )
        repair = f"Compute the result from {name}, or differentiate for {tensor_words(shared)} and take its part of the gradient. allow_unused=True would only hide this."
        return Explained(text, repair, sites + site(run.line, "fails here", run.call), {"asked for": name})
    text = f"There is no path from {name} to the result: no operation behind the result used {name}."
    sites = site(asked.line, "made here, off the path", name) + site(run.line, "fails here", run.call)
    repair = f"Check that the result depends on {name}. allow_unused=True would only hide this."
    return Explained(text, repair, sites, {"asked for": name})


# Names that are no leaf.


# Switches.


def switches_without_effect(record: Record) -> Iterator[Finding]:
    """enable_grad inside inference mode, and gradients that are off at the end."""
    modes = record.result.modes
    void = next(
        (m for m in modes if m.enabled and m.inference and m.line and "enable_grad" in record.text(m.line)), None
    )
    if void:
        text = f"enable_grad{on_line(void.line)} stands inside inference mode and changes nothing there: the results are inference tensors without history."
        yield Finding(
            level="surprise",
            title="enable_grad has no effect in inference mode",
            text=text,
            evidence={"inference mode": True},
            line=void.line,
            repair="Use no_grad outside instead: enable_grad undoes that.",
            sites=site(void.line, "no effect here"),
        )
    last = modes[-1] if modes else None
    if last and not last.enabled and not last.inference and "set_grad_enabled(False)" in record.text(last.line):
        text = f"set_grad_enabled(False){on_line(last.line)} is a call of its own: gradients stay off for everything after it, to the end of the program."
        yield Finding(
            level="surprise",
            title=f"Gradients are off since line {last.line}",
            text=text,
            evidence={"gradients": "off"},
            line=last.line,
            repair="Write `with torch.set_grad_enabled(False):` or torch.no_grad().",
            sites=site(last.line, "gradients off from here"),
        )
