"""The order in which a training program does things: steps, cleared and clipped gradients, sums, graphs that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from lab.contract import Finding
from lab.experiments.autograd_graph.findings.record import Record, bare, is_zero, on_line, site, tensor_words, words
from lab.records.graph import Pass


def accumulated(record: Record) -> Iterator[Finding]:
    """A leaf whose ``.grad`` held something before a pass added to it."""
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
            text += f" The same holds for {len(names) - 1} other {'leaf' if len(names) == 2 else 'leaves'}."
        others = {c.leaf for c in clears} - set(names)
        if owned and name not in owned and others:
            text += f" The optimizer does not hold {name}, so its zero_grad() clears other leaves only."
        meant, why = _sum_is_meant(record, run, name)
        text += why
        evidence = {"before": words(step.before), "added": words(step.incoming), "after": words(step.after)}
        sites = site(run.line, "added here", f"{name}.grad", words(step.before), words(step.after))
        yield Finding(
            level="fact" if meant else "surprise", title=f"{name}.grad is a sum over backward passes", text=text, evidence=evidence,
            repair="" if meant else f"Clear it between steps: optimizer.zero_grad(), or {name}.grad = None.", sites=sites,
        )  # fmt: skip
        return


def _sum_is_meant(record: Record, run: Pass, name: str) -> tuple[bool, str]:
    """Whether nothing used a part of this sum before, or nothing uses the sum; with the words for it."""
    holding = [s for s in record.result.steps if name in s.parameters]
    before = [
        p.moment
        for p, steps in record.own_passes()
        if p.moment < run.moment and any(record.nodes[s.node].label == name and s.after is not None for s in steps)
    ]
    since = max(before, default=0)
    if holding:
        later = next((s for s in holding if s.moment > run.moment), None)
        cleared = [c.moment for c in record.result.cleared if c.leaf == name and c.moment >= run.moment]
        if later is None or any(moment <= later.moment for moment in cleared):
            return True, " No step uses this sum."
        if not any(since < s.moment <= run.moment for s in holding):
            return (
                True,
                " No step came between them: the gradients of both passes are meant to add up if one step follows.",
            )
        return False, ""
    written = any(w.name == name and since < w.moment <= run.moment for w in record.result.written)
    again = any(p.line == run.line and p.moment < run.moment for p, _ in record.own_passes())
    return not (record.result.steps or written or again), ""


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
    named = [name for name in steps[0].parameters[:3] if name != "leaf"]
    shown = ", ".join(named) or ("a tensor without a name" if len(held) == 1 else "tensors without names")
    others = ", ".join(dict.fromkeys(reached[:3]))
    none = "its only parameter" if len(held) == 1 else f"all {len(held)} of its parameters"
    text = (
        f"{steps[0].optimizer}{on_line(built)} holds {shown}, and backward brought gradients to {others} only: step(){on_line(steps[0].line)} found "
        f".grad None for {none}, so nothing moved."
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


# Losses.


# Checks of torch.


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
