"""What hangs beside its owner: not registered, with the marks that it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lab.contract import Finding
from lab.experiments.module_anatomy.cause import repair_of
from lab.experiments.module_anatomy.schema import Result
from lab.experiments.module_anatomy.words import counted, listed, site
from lab.records.anatomy import TensorRow, Unregistered

MOST_SAID = 4


def hanging(result: Result) -> Iterator[Finding]:
    """What one line put into several modules of a class is told once."""
    found = list(_hanging(result))
    told_once: dict[Any, Finding] = {}
    for f in found:
        told_once.setdefault((f.line, f.repair, f.edits) if f.line else id(f), f)
    for finding in told_once.values():
        same = [
            f for f in found if f.line and (f.line, f.repair, f.edits) == (finding.line, finding.repair, finding.edits)
        ]
        others = counted(len(same) - 1, "other module")
        told = f"{finding.text} The same line did so in {others}." if len(same) > 1 else finding.text
        yield replace(finding, text=told)


def _hanging(result: Result) -> Iterator[Finding]:
    left = {name.split(" ")[0] for conversion in result.conversions for name in conversion.left}
    for u in result.unregistered[:40]:
        rows = _rows(result, u)
        if u.way == "made in forward":
            yield _made(result, u)
        elif u.what == "modules":
            yield from _modules(result, u, rows)
        elif u.what == "parameters":
            yield _parameters(result, u, rows)
        elif u.what == "lost parameter":
            yield _lost(result, u, rows)
        elif u.what == "activation":
            yield from _activation(result, u)
        elif not any(row.name in left for row in rows):
            yield from _tensor(result, u, rows)


def _rows(result: Result, u: Unregistered) -> list[TensorRow]:
    return [t for t in result.tensors if t.name == u.path or t.name.startswith((f"{u.path}.", f"{u.path}["))]


def _lacking(rows: list[TensorRow], result: Result) -> tuple[str, dict[str, int]]:
    """ "to() reaches none, the state dict has none, SGD steps none", each counted on this run."""
    said, evidence, count = [], {}, len(rows)
    moves = [row.moves for row in rows if row.moves is not None]
    if moves and not all(moves):
        said.append(f"to() moves {sum(moves) or 'none'}")
        evidence["moved"] = sum(moves)
    saved = sum(row.saved for row in rows)
    if saved < count:
        said.append(f"the state dict has {saved or 'none'}")
        evidence["saved"] = saved
    trains = [row for row in rows if row.requires_grad]
    owned = sum(bool(row.owned) for row in trains)
    if trains and owned < len(trains):
        said.append(f"the optimizer holds {owned or 'none'}")
        evidence["held by the optimizer"] = owned
    with_gradient = sum(row.gradient == "value" for row in trains)
    if with_gradient and owned < len(trains):
        said.append(f"{with_gradient if with_gradient < len(trains) else 'all'} get a gradient all the same")
        evidence["with a gradient"] = with_gradient
    return ", ".join(said), {"tensors": count, **evidence}


def _modules(result: Result, u: Unregistered, rows: list[TensorRow]) -> Iterator[Finding]:
    words, evidence = _lacking(rows, result)
    where = {
        "list": "a plain list or tuple",
        "dict": "a plain dict",
        "object": "an object that is no module",
        "class attribute": "an attribute of the class, shared by all its instances",
        "closure": "a variable of an enclosing function",
        "global": "a variable of the program outside of the module",
    }.get(u.way, "a plain attribute")
    if not rows:
        if u.reads_mode and u.way in ("list", "dict", "object"):
            yield Finding(
                level="warning",
                title=f"eval() does not reach {u.path}",
                text=f"{u.path} holds {listed(u.classes)} in {where}. train() and eval() go through registered modules only, so these stay in the mode in which they were made.",
                evidence={"modules": u.modules},
                line=u.line,
                repair=u.repair,
                sites=site(u.line, "not registered", u.path),
                edits=repair_of(result, u),
            )
        return
    if not words:
        return
    yield Finding(
        level="warning" if u.trainable and u.way != "global" else "surprise",
        title=f"{u.path}: {counted(u.modules, 'module')}, not registered",
        text=f"{u.owner_class} reaches {listed(u.classes)} through {where}, where nn.Module does not look. Of {counted(len(rows), 'tensor')} "
        f"with {u.elements:,} numbers: {words}.",
        evidence={"numbers": u.elements, **evidence},
        line=u.line,
        repair=u.repair,
        sites=site(u.line, "not registered", u.path),
        edits=repair_of(result, u),
    )


def _parameters(result: Result, u: Unregistered, rows: list[TensorRow]) -> Finding:
    words, evidence = _lacking(rows, result)
    return Finding(
        level="warning" if words else "fact",
        title=f"{u.path}: {counted(u.tensors, 'Parameter')} that no module knows",
        text=f"A Parameter is registered when it becomes an attribute of a module. These lie in {'a plain list or tuple' if u.way == 'list' else 'a plain dict' if u.way == 'dict' else 'a ' + u.way}"
        f"{': ' + words if words else ''}.",
        evidence={"numbers": u.elements, **evidence},
        line=u.line,
        repair=u.repair,
        sites=site(u.line, "not registered", u.path),
        edits=repair_of(result, u),
    )


def _tensor(result: Result, u: Unregistered, rows: list[TensorRow]) -> Iterator[Finding]:
    """A tensor set up before any forward. What a forward leaves behind is its own business."""
    if u.in_forward or u.filled_later or u.way in ("global", "closure") or not rows:
        return
    words, evidence = _lacking(rows, result)
    if not words:
        return
    one = len(rows) == 1
    if one:
        words = (
            words.replace("moves none", "does not move it")
            .replace("has none", "lacks it")
            .replace("holds none", "does not hold it")
        )
    trains = " It requires a gradient, and is no Parameter." if u.trainable else ""
    alone = u.way == "attribute"
    what = (
        f"a plain tensor of shape {list(u.shape)}, {u.dtype}"
        if alone
        else f"a plain {'list or tuple' if u.way == 'list' else u.way} with {counted(len(rows), 'plain tensor')}"
    )
    buffer = f'self.register_buffer("{u.name}", ...); persistent=False keeps it out of the state dict.'
    yield Finding(
        level="warning" if u.read_in_forward and alone else "surprise",
        title=f"{u.path} is a plain tensor" if alone else f"{u.path} holds plain tensors",
        text=f"{u.path} is {what}: {words}.{trains}",
        evidence=evidence,
        line=u.line,
        repair="nn.Parameter, if it is to be trained."
        if u.trainable
        else buffer
        if alone
        else "register_buffer for each that belongs to the state of the model.",
        sites=site(u.line, "not registered", u.path),
        edits=repair_of(result, u),
    )


def _lost(result: Result, u: Unregistered, rows: list[TensorRow]) -> Finding:
    words, evidence = _lacking(rows, result)
    words = (
        words.replace("moves none", "does not move it")
        .replace("has none", "lacks it")
        .replace("holds none", "does not hold it")
    )
    return Finding(
        level="warning",
        title=f"{u.path} is not a parameter any more",
        text=f"A conversion of a Parameter gives a new tensor with a history; the Parameter itself was dropped on the same line. {u.path} is that "
        f"result: no leaf, not registered{'; ' + words if words else ''}.",
        evidence=evidence,
        line=u.line,
        repair=u.repair,
        sites=site(u.line, "converted here", u.path),
        edits=repair_of(result, u),
    )


def _activation(result: Result, u: Unregistered) -> Iterator[Finding]:
    if u.way != "attribute" or u.line is None:  # what torch itself puts there, as the weight_norm of old does
        return
    yield Finding(
        level="surprise",
        title=f"{u.path} keeps a graph alive",
        text=f"{u.path} is the result of operations and carries their graph, with everything that was saved for backward. It stays until the "
        "attribute is overwritten, and a deep copy of the model is refused while it is there.",
        evidence={"numbers": u.elements},
        line=u.line,
        repair=u.repair,
        sites=site(u.line, "kept here", u.path),
        edits=repair_of(result, u),
    )


def _made(result: Result, u: Unregistered) -> Finding:
    return Finding(
        level="warning",
        title=f"Every forward makes a new {u.name}",
        text=f"Line {u.line} runs inside a forward and makes a layer with {u.elements:,} new random numbers each time{_so_far(u)}. None is registered: the same "
        "input gives another output, and there is nothing to train.",
        evidence={"made by the program": u.times, "numbers in each": u.elements},
        line=u.line,
        repair=u.repair,
        sites=site(u.line, "made anew here", u.name),
        edits=repair_of(result, u),
    )


def _so_far(u: Unregistered) -> str:
    return f"; the program made {u.times} of them" if u.times > 1 else ""
