"""Whose memory it is: what was written through another name, dropped, or copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.contract import Finding, Site
from lab.experiments.tensor_anatomy.schema import Result
from lab.quantities import bytes_text
from lab.records.tensors import Line, Note


def _read_only(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="warning",
        title=f"A read-only array was written through {e['tensor']}",
        text=f"{e['array']} was marked read-only in NumPy, and {e['tensor']} has its memory. torch has no read-only tensors: the write "
        f"on line {note.line} changed the array.",
        evidence={"shared on line": e["shared_on_line"], "written on line": note.line},
        line=note.line,
        sites=note.sites,
        repair="Copy it: torch.tensor(array), or torch.from_numpy(array.copy()).",
    )


def _one_memory(note: Note) -> Finding:
    e = note.evidence
    array = e["op"] == "numpy"
    return Finding(
        level="warning",
        title=f"{e['entries']} entries, one memory",
        text=f"{e['entries']} entries{' of ' + e['holder'] if e['holder'] else ''} are the same piece of memory, and it was written "
        f"{'once' if e['writes'] == 1 else str(e['writes']) + ' times'}: all of them show the last values. {'.numpy() shares the memory of the tensor.' if array else 'Keeping a tensor keeps no copy.'}",
        evidence={"entries": e["entries"], "pieces of memory": 1, "writes": e["writes"]},
        line=note.line,
        sites=note.sites,
        repair="Keep a copy: t.detach().cpu().numpy().copy()." if array else "Keep a copy: t.detach().clone().",
    )


def _snapshot(note: Note) -> Finding:
    e = note.evidence
    how = {"numpy": "numpy() shares the memory", "detach": "detach() copies nothing", "data": ".data copies nothing"}[
        e["op"]
    ]
    times = "once" if e["writes"] == 1 else f"{e['writes']:,} times"
    return Finding(
        level="surprise",
        title=f"{e['name']} is no snapshot",
        text=f"{e['name']} is the memory of {e['tensor']}, which was written {times} since, and it shows the new values: {how}.",
        evidence={"writes since": e["writes"]},
        line=note.line,
        sites=note.sites,
        repair="Copy: t.numpy().copy()."
        if e["op"] == "numpy"
        else "Copy: t.detach().clone(); a whole state with copy.deepcopy(model.state_dict()).",
    )


def _outside(note: Note) -> Finding:
    e = note.evidence
    named = " and ".join(e["tensors"]) or "A tensor"
    where = f"on line {note.line}" if note.line else "between two operations"
    return Finding(
        level="surprise",
        title=f"{named} changed without an operation of torch",
        text=f"{e['array']} and {named} have the same memory, and NumPy wrote into it {where}. No version counter moved: autograd cannot notice.",
        evidence={"array": e["array"], "tensors": ", ".join(e["tensors"])},
        line=note.line,
        sites=note.sites,
        repair="Where the two should be apart, copy: torch.tensor(array).",
    )


def _rebound(note: Note) -> Finding:
    e = note.evidence
    named = " and ".join(e["tensors"])
    return Finding(
        level="surprise",
        title=f"{e['array']} is another array now; {named} kept the old one",
        text=f"Line {note.line} computes a new array and gives it the name {e['array']}. {named} still has the memory of the first one and "
        "sees nothing of it.",
        evidence={"array": e["array"], "tensors": named},
        line=note.line,
        sites=note.sites,
        repair=f"Write in place ({e['array']} += …, {e['array']}[...] = …), or make the tensor afterwards.",
    )


def _dropped(note: Note) -> Finding:
    e = note.evidence
    did = "gave back the same tensor here" if e["same_object"] else "made a new tensor, and nothing keeps it"
    return Finding(
        level="warning",
        title=f"{e['tensor']}.{e['op']}(…) changes nothing",
        text=f"The call on line {note.line} {did}; {e['tensor']} is as before. Methods of a tensor without a trailing underscore return "
        "their result. Only a module is moved in place.",
        evidence={"operation": e["op"], "same object": e["same_object"]},
        line=note.line,
        sites=note.sites,
        repair=f"Keep the result: {e['tensor']} = {e['tensor']}.{e['op']}(…).",
    )


def _copy_written(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="warning",
        title="The assignment went into a copy",
        text=f"{e['target']} indexes twice, and the first indexing (a mask or a list) makes a copy. The write lands in that copy: 0 elements "
        "of the tensor changed.",
        evidence={"elements changed": 0},
        line=note.line,
        sites=note.sites,
        repair="Index once: combine the conditions, or use torch.where.",
    )


def _refused(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="surprise",
        title=f"{e['op']} was refused on line {note.line}, and the program went on",
        text=e["text"],
        evidence={"error": e["type"]},
        line=note.line,
        sites=note.sites,
        repair=e["repair"],
    )


NOTES: dict[str, Callable[[Note], Finding]] = {
    "read-only written": _read_only,
    "one memory": _one_memory,
    "no snapshot": _snapshot,
    "outside write": _outside,
    "array rebound": _rebound,
    "result dropped": _dropped,
    "copy written": _copy_written,
    "refused and caught": _refused,
}


def facts(result: Result) -> Iterator[Finding]:
    """What the lines show, where nothing is wrong."""
    yield from _composite_copies(result)
    yield from _written_through(result)
    yield from _einsum(result)
    yield from _promoted(result)


def _composite_copies(result: Result) -> Iterator[Finding]:
    """``reshape`` and its kind decide while they run."""
    undecided = [
        line for line in result.lines if line.op in ("reshape", "flatten", "contiguous", "ravel") and line.line
    ]
    copied = [line for line in undecided if line.kind == "new memory" and line.new_bytes]
    if copied:
        first = copied[0]
        views = sum(line.kind == "view" for line in undecided)
        source = first.inputs[0].name if first.inputs else "its input"
        also = f" {views} other call{'s' * (views > 1)} of its kind gave a view." if views else ""
        yield Finding(
            level="fact",
            title=f"{first.op} copied {bytes_text(first.new_bytes)} on line {first.line}",
            text=f"{source} does not lie in memory in the order of its indices, so {first.op} had to copy.{also}",
            evidence={"copied_bytes": first.new_bytes},
            line=first.line,
        )


def _written_through(result: Result) -> Iterator[Finding]:
    written = [line for line in result.lines if line.kind == "in place" and line.shares_with and line.op != "setitem"]
    if written:
        line: Line = written[0]
        others = ", ".join(line.shares_with[:5])
        yield Finding(
            level="fact",
            title=f"One write, {len(line.shares_with) + 1} names",
            text=f"{line.op} on line {line.line} writes into {line.name or 'a tensor'}; {others} {'read' if len(line.shares_with) > 1 else 'reads'} "
            "the same elements and changed with it.",
            evidence={"names": len(line.shares_with) + 1},
            line=line.line,
        )


def _einsum(result: Result) -> Iterator[Finding]:
    for found in result.einsums[:1]:
        arithmetic = [op for op in found.operations if op not in MOVES]
        close = (
            f" The loops in float64 differ by at most {found.difference:.1e}." if found.difference is not None else ""
        )
        yield Finding(
            level="fact",
            title=f"{found.equation} became {', '.join(found.operations) or 'nothing'}",
            text=f"{found.products:,} products as loops; torch runs {len(found.operations)} operation{'s' * (len(found.operations) != 1)}, "
            f"{len(arithmetic)} of them with arithmetic.{close}",
            evidence={"products": found.products, "arithmetic operations": len(arithmetic)},
            line=found.line,
        )


MOVES = {
    "permute",
    "view",
    "unsqueeze",
    "squeeze",
    "transpose",
    "diagonal",
    "reshape",
    "expand",
    "alias",
    "as_strided",
    "_unsafe_view",
    "select",
    "t",
}
"""Operations of an einsum that compute nothing."""


def _promoted(result: Result) -> Iterator[Finding]:
    wide = [
        line
        for line in result.lines
        if line.promoted_from and line.dtype == "float64" and "float32" in line.promoted_from
    ]
    if wide:
        line = wide[0]
        yield Finding(
            level="surprise",
            title=f"float64 from line {line.line} on",
            text=f"{line.op} met {' and '.join(line.promoted_from)}, and the wider one wins: {line.name or 'its result'} takes twice the memory "
            "of float32, and what is computed from it too.",
            evidence={"dtype": line.dtype, "bytes": line.new_bytes},
            line=line.line,
            sites=tuple(
                Site(at, role, name)
                for at, role, name in (
                    *((i.line, "float64 from here", i.name) for i in line.inputs if i.dtype == "float64"),
                    (line.line, "promoted here", line.name),
                )
                if at
            ),
            repair="Convert the float64 tensor where it begins: .float().",
        )
