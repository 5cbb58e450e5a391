"""Steps, cleared gradients, hooks, losses: the order in which a training program does things."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise

from lab.contract import Finding
from lab.experiments.autograd_graph.findings.record import Record, bare, is_zero, on_line, site, tensor_words, words
from lab.records.operations import Hook, Made

_LOSSES = {
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
}


def accumulated(record: Record) -> Iterator[Finding]:
    """A leaf whose ``.grad`` held something before a pass added to it."""
    steps_at = [s.moment for s in record.result.steps]
    clears = record.result.cleared
    for run, steps in record.own_passes()[1:]:
        summed = [s for s in steps if s.before is not None and s.after is not None and not is_zero(s.before)]
        owned = {p for s in record.result.steps for p in s.parameters}
        summed = [s for s in summed if record.nodes[s.node].label != "leaf"]
        summed.sort(key=lambda s: record.nodes[s.node].label not in owned)
        if not summed:
            continue
        step = summed[0]
        names = [record.nodes[s.node].label for s in summed]
        name = names[0]
        text = (
            f"{name}.grad was {words(step.before)}; {run.call}{on_line(run.line)} added {words(step.incoming)}, so it is {words(step.after)} now. "
            "backward adds to .grad, it never replaces it."
        )
        if len(names) > 1:
            text += f" The same holds for {len(names) - 1} other leaves."
        others = {c.leaf for c in clears} - set(names)
        if owned and name not in owned and others:
            text += f" The optimizer does not hold {name}, so its zero_grad() clears other leaves only."
        between = [m for m in steps_at if m <= run.moment]
        if record.result.steps and not between:
            text += " No step came between them: the gradients of both passes are meant to add up if one step follows."
        evidence = {"before": words(step.before), "added": words(step.incoming), "after": words(step.after)}
        sites = site(run.line, "added here", f"{name}.grad", words(step.before), words(step.after))
        yield Finding(
            level="surprise", title=f"{name}.grad is a sum over backward passes", text=text, evidence=evidence,
            repair=f"Clear it between steps: optimizer.zero_grad(), or {name}.grad = None.", sites=sites,
        )  # fmt: skip
        return


def stepped_without_gradient(record: Record) -> Iterator[Finding]:
    """``step`` after ``zero_grad`` cleared what backward had just brought."""
    for step in record.result.steps:
        if not step.parameters or len(step.without_gradient) < len(step.parameters):
            continue
        cleared = [c for c in record.result.cleared if c.leaf in step.parameters and c.moment <= step.moment]
        passes = [p for p, _ in record.own_passes() if p.moment <= step.moment and not p.error and p.inputs is None]
        if not cleared or not passes or not passes[-1].moment <= cleared[-1].moment:
            continue
        last, run = cleared[-1], passes[-1]
        text = (
            f"{last.caller or 'grad = None'}{'()' if last.caller else ''}{on_line(last.line)} cleared the gradients that {run.call}{on_line(run.line)} had brought, before "
            f"{step.optimizer}.step(){on_line(step.line)}: all {len(step.parameters)} parameters had .grad None, so nothing moved."
        )
        sites = (
            site(last.line, "cleared here", last.leaf)
            + site(step.line, "steps here without gradients", step.optimizer)
            + site(run.line, "gradients made here", run.call)
        )
        yield Finding(
            level="warning", title="step() found no gradients", text=text, evidence={"parameters without .grad": len(step.without_gradient)}, line=last.line,
            repair="Order: zero_grad, backward, step.", sites=sites,
        )  # fmt: skip
        return


def clipped_after_step(record: Record) -> Iterator[Finding]:
    """Gradients that were clipped after the step that should have used them."""
    clips = [w for w in record.result.written if w.caller.startswith("clip_grad")]
    if not clips or not record.result.steps:
        return
    used = 0
    for clip in clips:
        after = [s for s in record.result.steps if s.moment > clip.moment]
        cleared = [c.moment for c in record.result.cleared if c.moment > clip.moment]
        if after and (not cleared or after[0].moment < cleared[0]):
            used += 1
    before = [s for s in record.result.steps if s.moment < clips[0].moment]
    if used or not before:
        return
    clip, step = clips[0], before[-1]
    text = (
        f"{clip.caller}{on_line(clip.line)} ran after {step.optimizer}.step(){on_line(step.line)}, and the gradients were cleared before the next step: "
        "no update used a clipped gradient."
    )
    sites = site(clip.line, "clipped here, too late", clip.name) + site(step.line, "stepped here", step.optimizer)
    yield Finding(
        level="warning",
        title="Gradients are clipped after the step",
        text=text,
        evidence={"clipped": len(clips), "used by a step": 0},
        line=clip.line,
        repair="Order: backward, clip, step.",
        sites=sites,
    )


def frozen_by_load(record: Record) -> Iterator[Finding]:
    """Results with a graph that were copied into parameters without it."""
    loads = [
        w
        for w in record.result.written
        if w.caller == "load_state_dict" and w.operation == "copy_" and not w.grad_enabled
    ]
    for load in loads:
        made = record.made.get(load.state)
        source = (
            next(
                (
                    record.made[i]
                    for i in made.inputs
                    if i in record.made and record.made[i].requires_grad and not record.made[i].is_leaf
                ),
                None,
            )
            if made
            else None
        )
        if source is None:
            continue
        text = (
            f"load_state_dict{on_line(load.line)} copied {tensor_words(source)} into {load.name} in place and without a graph: the way from a loss through {tensor_words(source)} "
            f"back to what it was computed from is cut there."
        )
        sites = site(load.line, "cut here", load.name, "requires gradients", "no history") + site(
            source.line, "computed here", tensor_words(source)
        )
        yield Finding(
            level="warning",
            title="load_state_dict cuts the graph",
            text=text,
            evidence={"into": load.name},
            line=load.line,
            repair="torch.func.functional_call(module, tensors, inputs) runs a module with given tensors and keeps the graph.",
            sites=sites,
        )
        return


def optimizer_of_others(record: Record) -> Iterator[Finding]:
    """An optimizer none of whose parameters ever got a gradient, while a pass brought gradients to others."""
    steps = record.result.steps
    if (
        not steps
        or record.result.fault
        or any(len(s.without_gradient) < len(s.parameters) or not s.parameters for s in steps)
    ):
        return
    held = set(steps[0].parameters)
    cleared = {c.leaf for c in record.result.cleared}
    reached = [record.nodes[s.node].label for _, passed in record.own_passes() for s in passed if s.after is not None]
    if cleared & held or not reached or set(reached) & held:
        return
    built = next((n for n, text in enumerate(record.lines, 1) if f"{steps[0].optimizer}(" in text), None)
    shown, others = ", ".join(steps[0].parameters[:3]), ", ".join(dict.fromkeys(reached[:3]))
    text = (
        f"{steps[0].optimizer}{on_line(built)} holds {shown}, and backward brought gradients to {others} only: step(){on_line(steps[0].line)} found "
        f".grad None for all {len(held)} of its parameters, so nothing moved."
    )
    sites = site(built, "built for other parameters", shown) + site(
        steps[0].line, "steps here without gradients", steps[0].optimizer
    )
    yield Finding(
        level="warning",
        title="The optimizer holds other parameters than the loss trains",
        text=text,
        evidence={"parameters held": len(held), "of them with a gradient": 0},
        line=built or steps[0].line,
        repair="Give the optimizer the parameters of the network in the loss.",
        sites=sites,
    )


def kept_in_a_total(record: Record) -> Iterator[Finding]:
    """A running total of losses that keeps the graph of every step."""
    roots = {state for run in record.result.passes for state in run.roots}
    for made in reversed(record.result.made):
        chain, at = [], made
        while (
            at is not None
            and bare(at.operation) in ("add", "add_", "+=", "iadd")
            and at.line == made.line
            and len(at.inputs) >= 2
        ):
            if at.inputs[1] not in roots:
                break
            chain.append(at)
            at = record.made.get(at.inputs[0])
        if len(chain) >= 2 and made.requires_grad and not made.is_leaf:
            name = made.name or "the total"
            if made.state in roots:
                return
            text = f"{name}{on_line(made.line)} adds up {len(chain) + 1} losses with their graphs: none of these graphs can be let go while {name} lives, and it grows with every step."
            yield Finding(
                level="warning",
                title=f"{name} keeps the graph of every step",
                text=text,
                evidence={"losses added": len(chain) + 1},
                line=made.line,
                repair="Add plain numbers: total += loss.item().",
                sites=site(made.line, "kept here", name),
            )
            return


# Hooks.


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


# Losses.


def broadcast_loss(record: Record) -> Iterator[Finding]:
    """A loss, or a difference that becomes one, of two shapes that broadcast against each other."""
    for made in record.result.made:
        shapes = [record.made[i].shape for i in made.inputs[:2] if i in record.made]
        if len(shapes) != 2 or shapes[0] == shapes[1] or not all(shapes):
            continue
        grown = _broadcast(shapes[0], shapes[1])
        if grown is None or math.prod(grown) <= max(math.prod(s) for s in shapes):
            continue
        loss = made.operation in _LOSSES
        if not loss and not (bare(made.operation) == "sub" and _ends_in_loss(record, made)):
            continue
        first, second = (record.made[i] for i in made.inputs[:2])
        names = [tensor_words(first), tensor_words(second)]
        text = (
            f"{bare(made.operation)}{on_line(made.line)} compares {names[0]} {list(shapes[0])} with {names[1]} {list(shapes[1])}: broadcasting makes {list(grown)} of them, "
            f"{math.prod(grown)} pairs instead of {max(math.prod(s) for s in shapes)}. The minimum of such a loss is the mean of the targets."
        )
        sites = (
            site(made.line, "broadcast here", names[0], list(shapes[0]), list(grown))
            + site(first.line, "shape from here", names[0])
            + site(second.line, "shape from here", names[1])
        )
        sites = tuple(s for i, s in enumerate(sites) if i == 0 or s.line != made.line)
        yield Finding(
            level="warning", title=f"The loss compares {list(shapes[0])} with {list(shapes[1])}", text=text, evidence={"pairs": math.prod(grown), "values": max(math.prod(s) for s in shapes)}, line=made.line,
            repair=f"Give both one shape: {names[0]}.squeeze(-1) or {names[1]}.unsqueeze(-1).", sites=sites,
        )  # fmt: skip
        return


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    longest = max(len(a), len(b))
    pairs = list(zip((1,) * (longest - len(a)) + a, (1,) * (longest - len(b)) + b, strict=True))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        return None
    return tuple(max(x, y) for x, y in pairs)


def _ends_in_loss(record: Record, made: Made) -> bool:
    """The difference is squared or made absolute, and then averaged or summed into a scalar that a pass starts from."""
    roots = {state for run in record.result.passes for state in run.roots} | {record.result.loss_state}
    chain = made
    for _ in range(3):
        following = next((m for m in record.result.made if chain.state in m.inputs), None)
        if following is None or bare(following.operation) not in ("pow", "square", "abs", "mul", "mean", "sum"):
            return False
        if following.shape == () and following.state in roots and bare(following.operation) in ("mean", "sum"):
            return bool(chain is not made)
        chain = following
    return False


# Checks of torch.


def gradcheck_in_single_precision(record: Record) -> Iterator[Finding]:
    """gradcheck on an input that is not float64."""
    warned = next((w for w in record.result.warned if "not a double precision floating poin" in w.text), None)
    if warned is None or not any(run.caller == "gradcheck" for run in record.result.passes):
        return
    text = (
        f"gradcheck{on_line(warned.line)} moves its input by 1e-6 and compares differences. In float32 a number near 20 is rounded to steps of 2e-6: the difference is "
        "mostly rounding, so a correct derivative can fail."
    )
    yield Finding(
        level="warning",
        title="gradcheck runs in float32",
        text=text,
        evidence={"step": 1e-6},
        line=warned.line,
        repair="Give it float64 inputs.",
        sites=site(warned.line, "checked in float32 here", "gradcheck"),
    )


def imaginary_dropped(record: Record) -> Iterator[Finding]:
    """A complex tensor cast to a real one."""
    warned = next((w for w in record.result.warned if "discards the imaginary part" in w.text), None)
    if warned:
        text = f"The cast{on_line(warned.line)} keeps the real part only: the imaginary part is dropped, and no gradient comes back to it."
        yield Finding(
            level="warning", title="The imaginary part is dropped", text=text, evidence={"kept": "real part"}, line=warned.line,
            repair="Say which part is meant: .real, .abs() or torch.view_as_real.", sites=site(warned.line, "imaginary part dropped here"),
        )  # fmt: skip


def scatter_twice(record: Record) -> Iterator[Finding]:
    """scatter with a repeated index: one value wins, backward gives both the gradient."""
    for made in record.result.made:
        if bare(made.operation) not in ("scatter", "scatter_", "index_put", "index_put_", "index_copy", "index_copy_"):
            continue
        index = next(
            (record.made[i] for i in made.inputs if i in record.made and record.made[i].dtype == "int64"), None
        )
        if index is None or not isinstance(index.value, list) or any(isinstance(v, list) for v in index.value):
            continue
        repeated = sorted({v for v in index.value if index.value.count(v) > 1})
        if repeated and made.requires_grad:
            text = (
                f"{bare(made.operation)}{on_line(made.line)} writes to place {', '.join(map(str, repeated))} more than once: one of the values stays, "
                "and which one is not defined. backward gives the gradient of that place to all of them."
            )
            yield Finding(
                level="warning",
                title=f"{bare(made.operation)} with a repeated index",
                text=text,
                evidence={"repeated": str(repeated)},
                line=made.line,
                repair="scatter_add or scatter_reduce says what happens to several values.",
                sites=site(made.line, "repeated index here", tensor_words(index)),
            )
            return


def growing_history(record: Record) -> Iterator[Finding]:
    """A pass of one line that walks more nodes each time."""
    lengths: dict[int, list[int]] = {}
    for run, _ in record.own_passes():
        if run.line and not run.error:
            lengths.setdefault(run.line, []).append(run.length)
    for line, counts in lengths.items():
        growing = len(counts) >= 3 and all(a < b for a, b in pairwise(counts))
        if growing:
            text = f"The pass{on_line(line)} walked {counts[0]} nodes the first time and {counts[-1]} the last: each graph contains the ones before it."
            yield Finding(
                level="warning",
                title="The graph grows from step to step",
                text=text,
                evidence={"first": counts[0], "last": counts[-1]},
                line=line,
                repair="Detach what is carried from one step to the next.",
                sites=site(line, "grows here", "", counts[0], counts[-1]),
            )
            return


def drawn_by_torchviz(record: Record) -> Iterator[Finding]:
    """What torchviz's picture does not show as it is."""
    for number, text in enumerate(record.lines, 1):
        if "make_dot(" not in text or record.result.fault:
            continue
        parameters = [t.name for t in record.result.tensors if "." in t.name and t.requires_grad]
        given = re.search(r"params\s*=\s*\{(.*?)\}", text)
        if parameters and given and "named_parameters" not in text:
            said = f"make_dot{on_line(number)} writes only the names that params gives it; {', '.join(parameters[:2])} {'are' if len(parameters) > 1 else 'is'} not there and drawn without a name."
            yield Finding(
                level="fact",
                title="torchviz names only what params holds",
                text=said,
                evidence={"parameters": len(parameters)},
                line=number,
                repair="Add dict(module.named_parameters()) to params.",
                sites=site(number, "drawn here", "make_dot"),
            )
            return
        twice = next(
            (
                n
                for n in record.all_nodes
                if len({s.leaf for s in n.saved if s.leaf}) == 1 and sum(bool(s.leaf) for s in n.saved) > 1
            ),
            None,
        )
        if "show_saved=True" in text:
            leaf = next((s.leaf for s in twice.saved if s.leaf), "") if twice else _squared(record, text)
            if leaf:
                said = f"{leaf} is a leaf and both saved operands of one mul. torchviz gives a tensor one box by its identity: the three roles are drawn as one box{on_line(number)}."
                yield Finding(
                    level="fact",
                    title="torchviz draws one box for a tensor in several roles",
                    text=said,
                    evidence={"roles": 3},
                    line=number,
                    repair="The tags of the picture here name each slot.",
                    sites=site(number, "drawn here", leaf),
                )
                return


def _squared(record: Record, text: str) -> str:
    match = re.search(r"\b(\w+) \* \1\b", text)
    return (
        match.group(1) if match and any(t.name == match.group(1) and t.is_leaf for t in record.result.tensors) else ""
    )
