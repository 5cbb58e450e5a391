"""An operation that torch refused for what it was given: the shapes, dtypes and numbers of its operands, and where they come from."""

from __future__ import annotations

import math
import re

from lab.experiments.autograd_graph.findings.record import Explained, Record, bare, numbers, on_line, site
from lab.program.explain import row_of
from lab.quantities import number_text
from lab.records.operations import Operand, Refused
from lab.records.program import Ended

_SHOWN = 3


def explain(record: Record, ended: Ended) -> Explained | None:
    refused, row = record.refused(ended), row_of(ended)
    if refused is None or not refused.operands:
        return None
    if "vmap: inplace arithmetic" in ended.message:
        return _outside_batch(refused)
    if row is None or not row.about:
        return None
    explanation, repair = row.texts(ended, None)
    if row.about == "dtype":
        return _dtypes(refused, row.explanation, repair)
    if row.about == "numbers":
        return _numbers(refused, row.explanation, repair)
    if row.about == "device":
        return _devices(record, refused, row.explanation, repair)
    why = explanation.removeprefix("The shapes do not fit together.")
    return _shapes(refused, _why(ended.message) or why, row.repair)


def _shapes(refused: Refused, why: str, repair: str) -> Explained | None:
    shaped = [o for o in refused.operands if o.shape is not None and not o.name.endswith(".bias")][:_SHOWN]
    if not shaped:
        return None
    said = _told(refused, shaped, [str(list(o.shape or ())) for o in shaped])
    where = f" in {refused.module}" if refused.module else ""
    text = f"The shapes do not fit together in {bare(refused.operation)}{where}: {said}. {why}".rstrip()
    if len(shaped) == 1:
        text = f"{bare(refused.operation)}{where} was given a tensor that does not fit: {said}. {why}".rstrip()
    sites = site(refused.line, "fails here", refused.operation) + tuple(
        s
        for o in shaped
        for s in site(o.line, "shape from here", _name(o), after=str(list(o.shape or ())))
        if o.line != refused.line
    )
    return Explained(text, repair, sites, {_name(o): str(list(o.shape or ())) for o in shaped})


def _why(message: str) -> str:
    """What the numbers in the message mean."""
    sizes = re.search(r"\((\d+)x(\d+) and (\d+)x(\d+)\)", message)
    if sizes:
        return f"The inner sizes must be equal, and {sizes[2]} is not {sizes[3]}."
    asked = re.search(r"shape '\[(.*)\]' is invalid for input of size (\d+)", message)
    if asked:
        wanted = [int(size) for size in asked[1].split(",")]
        known = math.prod(size for size in wanted if size != -1)
        if -1 in wanted:
            return f"It has {asked[2]} elements, which {known} does not divide."
        return f"It has {asked[2]} elements, and [{asked[1]}] takes {known}."
    channels = re.search(r"to have (\d+) channels, but got (\d+)", message)
    if channels:
        return f"The weight is made for {channels[1]} channels, dimension 1 of the input, and {channels[2]} arrived."
    index = re.search(r"index (-?\d+) is out of bounds for \w+ (\d+) with size (\d+)", message)
    if index:
        return f"Dimension {index[2]} has {index[3]} places, 0 to {int(index[3]) - 1}, and the index is {index[1]}."
    return ""


def _dtypes(refused: Refused, why: str, repair: str) -> Explained:
    typed = [o for o in refused.operands if o.dtype and not o.name.endswith(".bias")][:_SHOWN]
    differ = len({o.dtype for o in typed}) > 1
    said = _told(refused, typed, [o.dtype for o in typed])
    text = f"{why} {said}."
    if differ and "do not convert" not in why and "does not convert" in why:
        text = f"Two tensors have different dtypes and {bare(refused.operation)} does not convert: {said}."
    sites = tuple(s for o in typed for s in site(o.line, "dtype from here", _name(o), after=o.dtype)) + site(
        refused.line, "fails here", refused.operation
    )
    repair = "Convert one of them: t.float(), or dtype= at its creation." if "does not convert" in why else repair
    return Explained(text, repair, sites, {_name(o): o.dtype for o in typed})


def _numbers(refused: Refused, why: str, repair: str) -> Explained:
    """Class numbers, row numbers and probabilities: the smallest and the largest that came."""
    integers = [o for o in refused.operands if o.dtype.startswith(("int", "uint"))]
    given = (integers or list(refused.operands))[0]
    found = list(numbers(given.value))
    text, evidence = why, {}
    if found:
        low, high = number_text(min(found)), number_text(max(found))
        text = f"{_name(given)}{on_line(given.line) if given.line != refused.line else ''} holds numbers from {low} to {high}. {why}"
        evidence = {"smallest": min(found), "largest": max(found)}
    table = next((o for o in refused.operands if o is not given and o.shape), None)
    if table is not None and integers and table.shape:
        at = 0 if refused.operation == "embedding" else min(1, len(table.shape) - 1)
        what = "rows" if refused.operation == "embedding" else "outputs for each target"
        text += f" {_name(table)} has {table.shape[at]} {what}: numbers 0 to {table.shape[at] - 1}."
    sites = site(refused.line, "fails here", refused.operation) + tuple(
        s
        for o in (given, *([table] if table else []))
        for s in site(o.line, "numbers from here" if o is given else "size from here", _name(o))
        if o.line != refused.line
    )
    return Explained(text, repair, sites, evidence)


def _devices(record: Record, refused: Refused, why: str, repair: str) -> Explained:
    """The lines that put something on a device by name."""
    made = [m for o in refused.operands for m in record.behind([o.state]) if m.line]
    moved = {m.line: m for m in made if re.search(r"device|meta|cuda|\.to\(", record.text(m.line))}
    births = [o for o in refused.operands if o.line and o.line != refused.line and o.line not in moved]
    told = ", ".join(f"{m.name or bare(m.operation)} on line {line}" for line, m in list(moved.items())[:2])
    text = f"{why} {f'A device is named for {told}.' if told else ''}".strip()
    sites = tuple(s for line, m in moved.items() for s in site(line, "device chosen here", m.name))
    sites += tuple(s for o in births[:2] for s in site(o.line, "made here", _name(o)))
    return Explained(text, repair, sites + site(refused.line, "fails here", refused.operation), {})


def _outside_batch(refused: Refused) -> Explained:
    target = refused.operands[0]
    name = _name(target)
    text = f"{name}{on_line(target.line)} was made without the batch dimension of vmap, so a row of the batch cannot be written into it on line {refused.line}."
    sites = site(target.line, "made without the batch", name) + site(refused.line, "fails here", name)
    repair = "Make it from an input, such as torch.zeros_like(row) or row.new_zeros(...), or build it with torch.stack."
    return Explained(text, repair, sites, {"shape": str(list(target.shape or ()))})


def _told(refused: Refused, operands: list[Operand], facts: list[str]) -> str:
    return ", ".join(
        f"{_name(o)}{on_line(o.line) if o.line != refused.line else ''} is {fact}"
        for o, fact in zip(operands, facts, strict=True)
    )


def _name(operand: Operand) -> str:
    return operand.name or (f"the result of {bare(operand.made_by)}" if operand.made_by else "an operand")
