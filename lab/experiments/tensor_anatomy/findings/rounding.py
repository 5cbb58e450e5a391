"""Numbers that came out as others."""

from __future__ import annotations

from collections.abc import Callable

from lab.contract import Finding
from lab.records.tensors import Note


def _wrapped(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="warning",
        title=f"{e['dtype']} wrapped: {e['true']} became {e['got']}",
        text=f"{e['op']} in {e['dtype']} gave {e['got']} where the same in int64 gives {e['true']}; {e['elements']:,} of {e['of']:,} "
        "elements differ. Integers wrap without an error.",
        evidence={"true": e["true"], "got": e["got"], "elements": e["elements"]},
        line=note.line,
        sites=note.sites,
        repair="Convert before the arithmetic: t.int() or t.float().",
    )


def _cast(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="warning",
        title=f"{e['value']:g} does not fit into {e['dtype']}",
        text=f"{e['elements']:,} value{'s' * (e['elements'] > 1)} lie outside {e['low']} to {e['high']}; {e['value']:g} became {e['got']}. "
        "The conversion neither clamps nor raises.",
        evidence={"value": e["value"], "got": e["got"], "elements": e["elements"]},
        line=note.line,
        sites=note.sites,
        repair=f"Clamp first: t.clamp({e['low']}, {e['high']}).to(torch.{e['dtype']}).",
    )


def _rounded(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="surprise",
        title=f"{e['value']:,} became {e['got']:,}",
        text=f"{e['dtype']} holds every whole number only to {e['holds_to']:,}; {e['elements']:,} of {e['of']:,} numbers were rounded.",
        evidence={"value": e["value"], "got": e["got"], "elements": e["elements"]},
        line=note.line,
        sites=note.sites,
        repair="Keep ids and counts as integers, or use float64.",
    )


def _overflow(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="warning",
        title="float16 overflowed to infinity",
        text=f"{e['op']} gave infinity for {e['elements']:,} of {e['of']:,} elements from finite inputs: the largest float16 is 65,504.",
        evidence={"infinite": e["elements"], "largest": e["largest"]},
        line=note.line,
        sites=note.sites,
        repair="Use bfloat16, which has the range of float32, or do this operation in float32.",
    )


def _lost(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="warning",
        title=f"Adding {e['added']:g} to {e['value']:g} changes nothing in {e['dtype']}",
        text=f"{note.times:,} times the sum came out as it was. {e['dtype']} has {e['bits']} significant bits: from {2 ** e['bits']:,} on, "
        f"neighbouring numbers are 2 or more apart, and a sum rounds back when what is added is less than half that distance at its size.",
        evidence={"value": e["value"], "added": e["added"], "times": note.times, "limit": 2 ** e["bits"]},
        line=note.line,
        sites=note.sites,
        repair="Keep the running sum in float32, or collect and use sum(), which adds up in float32.",
    )


def _cut(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="warning",
        title=f"{e['value']:g} became {e['got']}",
        text=f"{e['target']} holds {e['dtype']}, and writing into it converts without a word: the fraction of {e['elements']:,} "
        f"value{'s' * (e['elements'] > 1)} is cut off.",
        evidence={"value": e["value"], "got": e["got"]},
        line=note.line,
        sites=note.sites,
        repair="Make the target a float tensor first.",
    )


NOTES: dict[str, Callable[[Note], Finding]] = {
    "integer wrapped": _wrapped,
    "cast out of range": _cast,
    "integer rounded": _rounded,
    "overflow": _overflow,
    "lost addition": _lost,
    "fraction cut": _cut,
}
