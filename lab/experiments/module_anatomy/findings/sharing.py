"""One object under several names."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.module_anatomy import edits
from lab.experiments.module_anatomy.schema import Result
from lab.experiments.module_anatomy.words import counted, listed, site
from lab.records.anatomy import Shared


def shared(result: Result) -> Iterator[Finding]:
    for one in result.shared:
        if one.kind == "module" and one.elements:
            yield _module(result, one)
        elif one.kind == "parameter":
            yield _parameter(result, one)
        elif one.kind == "memory" and _both_step(result, one):
            yield _memory(one)
    yield from _parametrized(result)
    yield from _lazy(result)


def _module(result: Result, one: Shared) -> Finding:
    count = len(one.names)
    keys = sum(t.saved for t in result.tensors if any(t.name.startswith(f"{n}.") for n in one.names))
    change = edits.own_copies(result.code, one.lines[0]) if one.repeated and one.lines else ()
    return Finding(
        level="warning" if one.repeated else "fact",
        title=f"{count} names, one {one.class_}",
        text=f"{listed(one.names)} are the same object: {one.elements:,} numbers, not {count * one.elements:,}. "
        + (f"The state dict lists all {keys} names; " if keys > len(one.names) else "")
        + "gradients of all uses add up in the one."
        + (" Multiplying a list repeats the object in it; it makes no copies." if one.repeated else ""),
        evidence={"names": count, "objects": 1, "numbers": one.elements},
        line=one.lines[0] if one.lines else None,
        repair="[make() for _ in range(n)] makes each anew." if one.repeated else "",
        sites=tuple(s for at in one.lines[:2] for s in site(at, "one object", one.names[0])),
        edits=change,
    )


def _parameter(result: Result, one: Shared) -> Finding:
    twice = result.count_by_module - result.parameter_count
    counts = (
        f" parameters() gives it once: {result.parameter_count:,} numbers in all; added up layer by layer they would be {result.count_by_module:,}."
        if twice > 0
        else ""
    )
    return Finding(
        level="fact",
        title=f"{listed(one.names)} are one parameter",
        text=f"One object of {one.elements:,} numbers under {counted(len(one.names), 'name')}. The state dict has every name; the gradient is the sum over "
        f"all uses.{counts}",
        evidence={
            "names": len(one.names),
            "numbers once": result.parameter_count,
            "summed by layer": result.count_by_module,
        },
        line=one.lines[0] if one.lines else None,
        sites=tuple(s for at in one.lines[:1] for s in site(at, "made one here", one.names[0])),
    )


def _both_step(result: Result, one: Shared) -> bool:
    """Whether both are tensors that the model owns: a buffer beside its view is no news."""
    return sum(t.kind == "parameter" for t in result.tensors if t.name in one.names) > 1


def _memory(one: Shared) -> Finding:
    return Finding(
        level="surprise",
        title=f"{listed(one.names)} share memory",
        text="They are different objects on one piece of memory: a step of one changes the other, each has a gradient of its own, and the sum is never formed.",
        evidence={"objects": len(one.names), "pieces of memory": 1},
        repair="To tie them, assign the Parameter itself.",
    )


def _parametrized(result: Result) -> Iterator[Finding]:
    if result.parametrized:
        names = result.parametrized
        yield Finding(
            level="fact",
            title=f"{listed(names)} {'is' if len(names) == 1 else 'are'} computed on each access",
            text="What is stored, stepped and saved are other tensors, under names with parametrizations in them. An optimizer or a state dict from "
            "before does not know these names.",
            evidence={"parametrized": len(names)},
        )


def _lazy(result: Result) -> Iterator[Finding]:
    if result.lazy and not result.fault:
        yield Finding(
            level="fact",
            title=f"{counted(len(result.lazy), 'parameter')} had no shape when the program ended",
            text=f"{listed(result.lazy)}: the first call of the model gives the shape. The objects stay the same, so an optimizer may hold them already.",
            evidence={"lazy": len(result.lazy)},
        )
