"""What the figure draws, as plain data: bands of the lines, steps, threads of tensors, the arrow of a fault."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from lab.contract import Site
from lab.records.gradient_modes import Birth, ModesOfGradients, Operation, Switch
from lab.wire import encode

STEPS, THREADS = 1_500, 10
WORDS = {"grad": "grad mode", "no_grad": "no_grad", "inference": "inference mode"}


def scene(result: ModesOfGradients, sites: Sequence[Site] = ()) -> dict[str, Any]:
    """All that the browser needs."""
    fault = result.fault
    drawn: dict[str, Any] = {
        "program": result.code,
        "sentence": sentence(result),
        "bands": {band.line: {"modes": band.modes, "times": band.times} for band in result.bands},
        "steps": _steps(result),
        "threads": _threads(result),
        "arrow": _arrow(result),
        "sites": _sites(sites),
        "fault": {"type": fault.type, "message": fault.message, "line": fault.line} if fault else None,
        "cut": max(0, len(result.lines) - STEPS) + result.lines_cut,
        "description": f"{sentence(result)}. {len(result.bands)} lines ran, {len(result.switches)} changes of mode.",
    }
    plain = encode(drawn)
    digest = hashlib.blake2b(repr((result.code, plain["steps"])).encode(), digest_size=8)
    return plain | {"figure": digest.hexdigest()}


def sentence(result: ModesOfGradients) -> str:
    """``12 operations: 9 in grad mode, 3 in inference mode; 2 changes of mode``."""
    counts = {mode: sum(op.mode == mode for op in result.lines) for mode in WORDS}
    modes = ", ".join(f"{count} in {WORDS[mode]}" for mode, count in counts.items() if count)
    changes = len(result.switches)
    return f"{len(result.lines)} results{': ' if modes else ''}{modes}; {changes} change{'s' * (changes != 1)} of mode"


def _steps(result: ModesOfGradients) -> list[dict[str, Any]]:
    """Operations and changes of mode in the order in which they happened."""
    found: list[tuple[tuple[int, int], dict[str, Any]]] = []
    for at, op in enumerate(result.lines[:STEPS]):
        step = {"line": op.line, "kind": "operation", "mode": op.mode, "text": _operation(op), "birth": op.birth}
        found.append(((at, 1), step))
    for switch in result.switches:
        if switch.step <= STEPS:
            step = {"line": switch.line, "kind": "switch", "mode": switch.to, "text": _switch(switch), "birth": None}
            found.append(((switch.step, 0), step))
    steps = [step for _, step in sorted(found, key=lambda pair: pair[0])]
    fault = result.fault
    if fault and fault.line:
        mode = next((s.to for s in reversed(result.switches)), "grad")
        told = fault.explanation or f"{fault.type}: {fault.message}"
        steps.append({"line": fault.line, "kind": "fault", "mode": mode, "text": f"Fails here. {told}", "birth": None})
    return steps


def _operation(op: Operation) -> str:
    named = op.name or "its result"
    history = (
        f"has a history ({op.grad_fn})"
        if op.grad_fn
        else "is a leaf that requires gradients"
        if op.requires_grad
        else "has no history"
    )
    kind = "; an inference tensor, no version counter" if op.inference else f"; version {op.version}"
    return f"{op.op} in {WORDS[op.mode]}: {named} {history}{kind}."


def _switch(switch: Switch) -> str:
    how = {"end": " (undone)", "decorator": " (by a decorator)", "call": " (a call)"}.get(switch.how, "")
    if switch.from_ == switch.to:
        return f"A switch inside {WORDS[switch.to]}: it stays in force{how}."
    return f"{WORDS[switch.from_]} → {WORDS[switch.to]}{how}."


def _threads(result: ModesOfGradients) -> list[dict[str, Any]]:
    """Named tensors, the newest of each name; those of the fault come first."""
    blamed = [b for b in result.blame.operands if b.line] if result.blame else []
    named: dict[str, tuple[int, Birth]] = {}
    for index, birth in enumerate(result.births):
        if birth.name and birth.line:
            named[birth.name] = (index, birth)
    keys = {(b.line, b.op, b.step) for b in blamed}
    ranked = sorted(named.values(), key=lambda pair: (pair[1].line, pair[1].op, pair[1].step) not in keys)
    chosen = sorted(ranked[:THREADS], key=lambda pair: pair[0])
    return [
        {
            "name": b.name,
            "line": b.line,
            "mode": b.mode,
            "birth": index,
            "inference": b.inference,
            "text": f"{b.name}: born on line {b.line} by {b.op} in {WORDS[b.mode]}{', an inference tensor' if b.inference else ''}",
            "blamed": (b.line, b.op, b.step) in keys,
        }
        for index, b in chosen
    ]


def _arrow(result: ModesOfGradients) -> dict[str, Any] | None:
    """From the line that failed to the line to blame."""
    fault = result.fault
    if not fault or not fault.line or not fault.sites or fault.sites[0].line == fault.line:
        return None
    return {"from": fault.line, "to": fault.sites[0].line, "text": fault.sites[0].role}


def _sites(sites: Sequence[Site]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for rank, site in enumerate(sites):
        known = found.setdefault(site.line, {"line": site.line, "first": not rank, "text": ""})
        said = f"{site.role}{': ' + site.tensor if site.tensor else ''}"
        known["text"] = f"{known['text']} · {said}" if known["text"] else said
    return list(found.values())
