"""What the figure draws, as plain data: steps, marks of the lines, pieces of memory, and names over the steps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lab.contract import Site
from lab.quantities import bytes_text, short_bytes_text
from lab.records.tensors import Line, TensorResult
from lab.wire import encode

STEPS = 1_500
KINDS = ("in place", "new memory", "view", "same object")
"""Of several marks on one line the first of these is shown."""


def scene(result: TensorResult, sites: Sequence[Site] = ()) -> dict[str, Any]:
    """All that the browser needs."""
    lines = result.lines[:STEPS]
    fault = result.fault
    drawn: dict[str, Any] = {
        "program": result.code,
        "sentence": sentence(result),
        "steps": [_step(line) for line in lines],
        "marks": _marks(lines),
        "storages": {
            number: {"bytes": size, "elements": elements, "item": item, "line": line, "values": values}
            for number, size, elements, item, line, values in zip(
                result.storages.number, result.storages.bytes, result.storages.elements, result.storages.item_bytes,
                result.storages.first_line, result.storages.values, strict=True,
            )
        },
        "places": {
            number: {"shape": shape, "stride": stride, "offset": offset, "dtype": dtype, "storage": storage}
            for number, shape, stride, offset, dtype, storage in zip(*asdict(result.places).values(), strict=True)
        },
        "bindings": [
            [step, name, tensor]
            for step, name, tensor in zip(*asdict(result.bindings).values(), strict=True)
            if step <= len(lines)
        ],
        "sites": _sites(sites),
        "fault": {"type": fault.type, "message": fault.message, "line": fault.line} if fault else None,
        "cut": max(0, len(result.lines) - STEPS) + result.lines_cut,
        "description": f"{sentence(result)}. {len(lines)} operations over {len({line.line for line in lines})} lines.",
    }  # fmt: skip
    plain = encode(drawn)
    digest = hashlib.blake2b(repr((result.code, plain["steps"], plain["bindings"])).encode(), digest_size=8)
    return plain | {"figure": digest.hexdigest()}


def sentence(result: TensorResult) -> str:
    """``6 names, 2 pieces of memory, 48 B copied``."""
    return (
        f"{result.names:,} name{'s' * (result.names != 1)}, {result.pieces:,} piece{'s' * (result.pieces != 1)} of memory, "
        f"{bytes_text(result.copied_bytes)} copied"
    )


def _step(line: Line) -> dict[str, Any]:
    return {
        "line": line.line,
        "op": line.op,
        "kind": line.kind,
        "name": line.name,
        "text": step_text(line),
        "storage": line.storage,
        "tensor": line.tensor,
    }


def step_text(line: Line) -> str:
    """One sentence on what the operation did."""
    named = line.name or "its result"
    what = f"{named} is {list(line.shape)} {line.dtype}"
    strides = f", strides {list(line.stride)}, offset {line.offset}" if line.stride else ""
    shared = f" with {', '.join(line.shares_with[:4])}" if line.shares_with else ""
    did = {
        "view": f"a view: no new memory, shared{shared}" if shared else "a view: no new memory",
        "new memory": f"new memory, {bytes_text(line.new_bytes)}",
        "in place": f"written in place{', seen by ' + ', '.join(line.shares_with[:4]) if line.shares_with else ''}",
        "same object": "the same object, nothing happened",
    }.get(line.kind, line.kind)
    more = f" Repeated to fit: {', '.join(line.expanded)}." if line.expanded else ""
    more += f" Promoted from {' and '.join(line.promoted_from)}." if line.promoted_from else ""
    more += f" In {line.module}." if line.module else ""
    return f"{line.op}: {what}{strides}; {did}.{more}"


def _marks(lines: Sequence[Line]) -> dict[int, dict[str, Any]]:
    """By line of the program: the strongest kind, the new memory of all its operations, shape and dtype of the last result."""
    found: dict[int, dict[str, Any]] = {}
    for line in lines:
        if line.line is None:
            continue
        mark = found.setdefault(line.line, {"kind": line.kind, "bytes": 0, "count": 0})
        mark["kind"] = min(mark["kind"], line.kind, key=_rank)
        mark["bytes"] += line.new_bytes
        mark["count"] += 1
        mark["shape"] = f"{list(line.shape)} {line.dtype}"
    for mark in found.values():
        size = f" {short_bytes_text(mark['bytes'])}" if mark["kind"] == "new memory" else ""
        mark["text"] = f"{mark['kind']}{size}"
    return found


def _rank(kind: str) -> int:
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def _sites(sites: Sequence[Site]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for rank, site in enumerate(sites):
        known = found.setdefault(site.line, {"line": site.line, "first": not rank, "text": ""})
        said = f"{site.role}{': ' + site.tensor if site.tensor else ''}"
        known["text"] = f"{known['text']} · {said}" if known["text"] else said
    return list(found.values())
