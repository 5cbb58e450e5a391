"""Shapes that fit by accident."""

from __future__ import annotations

from collections.abc import Callable

from lab.contract import Finding
from lab.quantities import bytes_text
from lab.records.tensors import Note


def _both_expanded(note: Note) -> Finding:
    e = note.evidence
    a, b, shape = e["a"], e["b"], e["result"]
    what = "loss compares" if e["loss"] else "comparison pairs" if e["compares"] else "operation pairs"
    text = (
        f"{a} has shape {e['a_shape']} and {b} has shape {e['b_shape']}: both were repeated to {shape}. The {what} every "
        f"element of one with every element of the other, {e['elements']:,} pairs in place of {e['expected']:,}, "
        f"and torch raises no error."
    )
    wide, flat = (a, b) if len(e["a_shape"]) > len(e["b_shape"]) else (b, a)
    return Finding(
        level="warning",
        title=f"{e['elements']:,} pairs in place of {e['expected']:,}",
        text=text,
        evidence={"pairs": e["elements"], "expected": e["expected"], "operation": e["op"]},
        line=note.line,
        sites=note.sites,
        repair=f"Bring both to one shape first: {wide}.squeeze(-1), or {flat}.unsqueeze(-1).",
    )


def _misaligned(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="warning",
        title=f"The numbers of {e['small']} met the wrong dimension",
        text=f"{e['small']} {e['small_shape']} is the {e['reduction']} of {e['whole']} {e['shape']} along dimension {e['dim']}, without keepdim. In {e['op']} it "
        f"was lined up with the last dimension. It fits only because the sizes are equal; {e['wrong']:,} of {e['elements']:,} elements differ from "
        "what keepdim=True gives.",
        evidence={"elements that differ": e["wrong"], "elements": e["elements"]},
        line=note.line,
        sites=note.sites,
        repair=f"{e['reduction']}({e['dim']}, keepdim=True) keeps the dimension in its place.",
    )


def _read_again(note: Note) -> Finding:
    e = note.evidence
    order = ", ".join(map(str, e["order"]))
    return Finding(
        level="warning",
        title=f"{e['op']}() does not transpose",
        text=f"{e['op']}() of {e['tensor']} from {e['shape']} to {e['result']} keeps the sizes and changes their order. It reads the same "
        f"memory again in the same order: {e['wrong']:,} of {e['elements']:,} elements differ from the permuted tensor. "
        f"First elements {_numbers(e['got'])}; permuted they are {_numbers(e['transposed'])}.",
        evidence={"elements that differ": e["wrong"], "elements": e["elements"]},
        line=note.line,
        sites=note.sites,
        repair=f"To swap dimensions write permute({order})."
        if len(e["order"]) != 2
        else "To swap dimensions write .T or transpose(0, 1).",
    )


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _batch_squeezed(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="surprise",
        title="squeeze() took dimension 0 as well",
        text=f"{e['tensor']} has shape {e['shape']}; squeeze() without a dimension removes every dimension of size 1, here "
        f"{', '.join(map(str, e['removed']))}, and leaves {e['result']}. With a batch of one the batch dimension goes too.",
        evidence={"before": str(e["shape"]), "after": str(e["result"])},
        line=note.line,
        sites=note.sites,
        repair=f"Name the dimension: squeeze({e['removed'][-1]}).",
    )


def _integer_mask(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="surprise",
        title=f"{e['mask']} is no mask: it picks entries 0 and 1",
        text=f"{e['mask']} holds zeros and ones in {e['dtype']}. As an index they are numbers of entries: {e['picked']} entries came out, each the "
        f"first or the second of {e['tensor']}. As a mask {e['ones']} would.",
        evidence={"entries": e["picked"], "as a mask": e["ones"]},
        line=note.line,
        sites=note.sites,
        repair=f"Make it boolean: {e['mask']}.bool().",
    )


def _both_formats(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="surprise",
        title="Contiguous in both memory formats",
        text=f"{e['tensor']} has shape {e['shape']} and strides {e['stride']}. A dimension of size 1 has no stride that matters, so it is "
        "contiguous both as (N, C, H, W) and as channels_last. Code that asks one of the two first decides by accident.",
        evidence={"shape": str(e["shape"]), "stride": str(e["stride"])},
        line=note.line,
        sites=note.sites,
    )


def _mixed(note: Note) -> Finding:
    e = dict(note.evidence)
    op = e.pop("op")
    said = ", ".join(f"{name} is on {device}" for name, device in e.items())
    return Finding(
        level="warning",
        title=f"{op} took tensors from two devices, and nothing refused it",
        text=f"{said}. All inputs of one operation must be on one device. The numbers of this result mean nothing: nobody computed them.",
        evidence={"operation": op, **e},
        line=note.line,
        sites=note.sites,
        repair="Give both the same device, with data.",
    )


def _large(note: Note) -> Finding:
    e = note.evidence
    return Finding(
        level="surprise",
        title=f"{e['tensor']} keeps {bytes_text(e['held_bytes'])} alive",
        text=f"{e['tensor']} is a view of {bytes_text(e['used_bytes'])} in a piece of memory of {bytes_text(e['held_bytes'])} "
        "that nothing else uses any more. A view keeps the whole piece.",
        evidence={"used_bytes": e["used_bytes"], "held_bytes": e["held_bytes"]},
        line=note.line,
        sites=note.sites,
        repair=f"Keep a copy instead: {e['tensor']}.clone().",
    )


NOTES: dict[str, Callable[[Note], Finding]] = {
    "both expanded": _both_expanded,
    "misaligned": _misaligned,
    "read again": _read_again,
    "batch squeezed": _batch_squeezed,
    "integer mask": _integer_mask,
    "both formats": _both_formats,
    "mixed devices": _mixed,
    "large memory held": _large,
}
