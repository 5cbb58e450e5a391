"""What the program asked of whole models: conversions, loads, optimizers, forwards by name."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.module_anatomy import edits
from lab.experiments.module_anatomy.cause import repair_of
from lab.experiments.module_anatomy.schema import Result
from lab.experiments.module_anatomy.words import counted, listed, renamed, site
from lab.records.anatomy import Conversion, Load, OptimizerRow


def asked(result: Result) -> Iterator[Finding]:
    for conversion in result.conversions:
        yield from _conversion(result, conversion)
    yield from _after_optimizer(result)
    for load in result.loads:
        yield from _load(result, load)
    for optimizer in result.optimizers:
        yield from _optimizer(result, optimizer)
    yield from _direct(result)
    yield from _misspelt(result)


def _conversion(result: Result, c: Conversion) -> Iterator[Finding]:
    if c.split:
        yield Finding(
            level="warning",
            title=f"{c.call}() took {listed(c.split)} apart",
            text=f"Before line {c.line} they were one parameter, after it each name has one of its own: {c.call}() had to make new Parameters, one for each "
            "place. Conversions of the dtype keep the object, and with it the tie.",
            evidence={"tied before": c.ties_before, "tied after": c.ties_after},
            line=c.line,
            repair="Tie them again afterwards.",
            sites=site(c.line, "taken apart here", c.split[0]),
            edits=edits.tied_again(result.code, c.line, c.module, c.split),
        )
    if c.left and not result.fault:
        yield _left_behind(result, c)


def _after_optimizer(result: Result) -> Iterator[Finding]:
    """Conversions of a model whose parameters an optimizer held already, a line once."""
    late = [c for c in result.conversions if c.optimizers and c.dtype and not c.split]
    for line in dict.fromkeys(c.line for c in late):
        here = [c for c in late if c.line == line]
        names = tuple(dict.fromkeys(name for c in here for name in c.optimizers))
        yield Finding(
            level="fact",
            title=f"{here[0].call}() after the optimizer: the same parameters",
            text=f"{here[0].call}() on line {line} gave the Parameter objects other data and kept the objects, so {listed(names)} {'steps' if len(names) == 1 else 'step'} what the model uses.",
            evidence={"optimizers": len(names)},
            line=line,
            sites=site(line, "converted here"),
        )


def _left_behind(result: Result, c: Conversion) -> Finding:
    names = tuple(n.split(" ")[0] for n in c.left)
    hanging = [u for u in result.unregistered if any(n.startswith(u.path) for n in names)]
    first = hanging[0] if hanging else None
    return Finding(
        level="warning",
        title=f"{c.call}() left {listed(names)} behind",
        text=f"Line {c.line} converted what is registered to {c.dtype}. {listed(c.left)} {'is' if len(c.left) == 1 else 'are'} not registered and "
        f"stayed. Where {'it meets' if len(c.left) == 1 else 'they meet'} the others, operations promote or refuse.",
        evidence={"left behind": len(c.left)},
        line=first.line if first else c.line,
        repair=first.repair if first else "",
        sites=(*(site(first.line, "not registered", names[0]) if first else ()), *site(c.line, "converted here")),
        edits=repair_of(result, first) if first and len(hanging) == 1 else (),
    )


def _load(result: Result, load: Load) -> Iterator[Finding]:
    if load.error and result.fault and result.fault.line == load.line:
        return
    complaints = len(load.missing) + len(load.unexpected)
    if load.error:
        if load.changed > 0:
            yield Finding(
                level="warning",
                title="A refused load has changed the module",
                text=f"load_state_dict on line {load.line} raised, and the program went on. {load.changed} of {load.keys} tensors had been overwritten by then.",
                evidence={"changed": load.changed, "keys": load.keys, "mismatched": len(load.mismatched)},
                line=load.line,
                repair="Compare names and shapes first, or load into a copy.",
                sites=site(load.line, "half loaded here", load.module),
            )
        return
    if complaints and not load.strict:
        fits = load.keys - len(load.missing)
        prefix = load.renamed.lstrip("-")
        said = f" {renamed(load)}" if prefix else ""
        yield Finding(
            level="warning" if not fits or prefix else "surprise",
            title=f"strict=False loaded {fits} of {load.keys} tensors" if fits else "strict=False loaded nothing",
            text=f"{len(load.missing)} names of the module are missing in what was given ({listed(load.missing)}), {len(load.unexpected)} of the given ones "
            f"fit none{' (' + listed(load.unexpected) + ')' if load.unexpected else ''}. {'The answer that says so was not looked at.' if not load.answer_used else 'Only the answer says so.'}{said}",
            evidence={
                "loaded": fits,
                "keys": load.keys,
                "missing": len(load.missing),
                "unexpected": len(load.unexpected),
            },
            line=load.line,
            repair=f"Take {prefix} off every key."
            if prefix and not load.renamed.startswith("-")
            else "Look at missing and unexpected, and stop where they are not what is meant.",
            sites=site(load.line, "loaded here", load.module),
            edits=edits.prefix_removed(result.code, load.line, prefix)
            if prefix and not load.renamed.startswith("-")
            else (),
        )
    if load.assign and load.stale:
        yield Finding(
            level="warning",
            title="assign=True left the optimizer with the old tensors",
            text=f"Line {load.line} put new Parameters into the module. {counted(load.stale, 'tensor')} of an optimizer made before {'is' if load.stale == 1 else 'are'} no part of it any more: "
            "they would be stepped, and the model would not change.",
            evidence={"no longer in the model": load.stale},
            line=load.line,
            repair="Make the optimizer after loading, or leave assign out.",
            sites=site(load.line, "replaced here", load.module),
        )


def _optimizer(result: Result, o: OptimizerRow) -> Iterator[Finding]:
    if o.stale and o.tensors and not any(load.stale for load in result.loads):
        yield Finding(
            level="warning",
            title=f"{o.class_} holds {counted(o.stale, 'tensor')} that the model does not have",
            text=f"It was made on line {o.line} with {counted(o.tensors, 'tensor')}; {o.stale} of them {'is' if o.stale == 1 else 'are'} in no module now: a layer, a weight "
            f"or a conversion replaced them. {'Not held: ' + listed(o.absent) + '.' if o.absent else ''}".rstrip(),
            evidence={"held": o.tensors, "gone from the model": o.stale, "not held": len(o.absent)},
            line=o.line,
            repair="Make the optimizer last, after every change of the model.",
            sites=site(o.line, "made too early"),
        )
    if o.state:
        converted = next((c.line for c in result.conversions if o.class_ in c.optimizers), None)
        yield Finding(
            level="surprise",
            title=f"State of {o.class_} in another format than its weights",
            text=f"{listed(o.state)}. The state was made with the optimizer, the weights were converted since, and steps go on without a word.",
            evidence={"tensors": len(o.state)},
            line=converted or o.line,
            repair="Convert the model first, then make the optimizer.",
            sites=(*site(converted, "converted here"), *site(o.line, "state made here")),
        )


def _direct(result: Result) -> Iterator[Finding]:
    for call in result.direct:
        name = call.path or (result.root if len(result.roots) == 1 else call.class_)
        if call.hooks:
            text = (
                f"Line {call.line} runs forward itself, {counted(call.times, 'time')}. What stands around it belongs to the call: {counted(call.hooks, 'hook')} of this module did not "
                "run."
            )
        else:
            text = (
                f"Line {call.line} runs forward itself, {counted(call.times, 'time')}. Nothing hangs on this module now, so nothing was skipped; hooks put on it later "
                "would not run here."
            )
        yield Finding(
            level="warning" if call.hooks else "fact",
            title=f"{name}.forward(...) runs without hooks",
            text=text,
            evidence={"calls": call.times, "hooks skipped": call.hooks * call.times},
            line=call.line,
            repair="Call the module.",
            sites=site(call.line, "past the hooks", name),
            edits=edits.called(result.code, call.line),
        )


def _misspelt(result: Result) -> Iterator[Finding]:
    for found in result.suspects:
        if not result.fault and found.meant == "__init__":
            yield Finding(
                level="warning",
                title=f"Nothing calls {found.class_}.{found.name}",
                text=f"Line {found.line} defines {found.name}. Python calls __init__ when an object is made, and this class takes that of its base.",
                evidence={},
                line=found.line,
                repair=f"Rename {found.name} to {found.meant}.",
                sites=site(found.line, "misspelt", found.name),
                edits=edits.renamed_method(result.code, found.line, found.name, found.meant),
            )
