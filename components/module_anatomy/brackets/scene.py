"""From recorded events to the rows of the bracket figure. Words are made here."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from lab.quantities import number_text
from lab.records.anatomy import AnatomyResult, Event
from lab.wire import encode

MOST_ROWS = 1500
_BY = {"program": "of the program", "probe": "probe", "torch": ""}


def brackets_scene(result: AnatomyResult) -> dict[str, Any]:
    """A row an event: an opening or closing bracket, or a hook between them."""
    events = result.events[:MOST_ROWS]
    depth, rows = 0, []
    for event in events:
        depth -= event.mark == "close"
        rows.append(_row(event, max(depth, 0), result.root))
        depth += event.mark == "open"
    return encode(
        {
            "figure": hashlib.sha1(json.dumps([(r["path"], r["kind"], r["mark"]) for r in rows]).encode()).hexdigest()[
                :12
            ],
            "rows": rows,
            "title": _title(result),
            "note": _note(result, len(events)),
            "description": f"Order of hooks in one call and one backward: {', '.join(_title(result))}.",
        }
    )


def _row(event: Event, depth: int, root: str) -> dict[str, Any]:
    name = event.path or root or "the model"
    words = {
        "open": f"{name}{'(...)' if event.kind == 'call' else '.forward(...)'} begins",
        "close": f"{name}{'(...)' if event.kind == 'call' else '.forward(...)'} ends",
        "point": f"{event.kind} on {name}",
    }[event.mark]
    return {
        "phase": event.phase, "path": name, "class": event.class_, "kind": event.kind, "mark": event.mark, "depth": depth, "line": event.line,
        "by": event.by, "words": words, "size": _size(event), "changed": event.changed, "said": _said(event, words),
    }  # fmt: skip


def _size(event: Event) -> str:
    if event.mark != "point":
        return event.shape
    if event.before is None:
        return event.shape
    if event.after is not None and event.after != event.before:
        return f"{event.shape} ‖·‖ {number_text(event.before)} → {number_text(event.after)}"
    return f"{event.shape} ‖·‖ {number_text(event.before)}"


def _said(event: Event, words: str) -> str:
    parts = [f"{words[:1].upper()}{words[1:]}{', ' + _BY[event.by] if _BY[event.by] else ''}."]
    if event.shape:
        parts.append(f"It was given {event.shape}.")
    if event.changed:
        change = (
            ""
            if event.before is None or event.after is None
            else f" The 2-norm goes from {number_text(event.before)} to {number_text(event.after)}."
        )
        parts.append(f"It {event.changed}.{change}")
    elif event.by == "program":
        parts.append("It changed nothing.")
    if event.line and event.mark == "point":
        parts.append(f"Registered on line {event.line}.")
    return " ".join(parts)


def _title(result: AnatomyResult) -> list[str]:
    own = [e for e in result.events if e.by == "program"]
    changes = sum(bool(e.changed) for e in own)
    calls = sum(e.kind == "call" and e.mark == "open" for e in result.events)
    probes = sum(e.by == "probe" for e in result.events)
    found = [_counted(calls, "call"), f"the program's hooks ran {_counted(len(own), 'time')}"]
    found += [f"{_counted(changes, 'change')} by them"] if own else []
    return [*found, *([_counted(probes, "probe")] if probes else [])]


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _note(result: AnatomyResult, shown: int) -> str:
    parts = []
    if result.no_events:
        parts.append(
            f"The pass ended early. {result.no_events}" if shown else f"Nothing was called. {result.no_events}"
        )
    if result.batch_by_lab:
        parts.append(f"The program has no batch: an input of shape {result.batch_by_lab} was made for the first layer.")
    if result.events_note:
        parts.append(result.events_note)
    if shown < len(result.events):
        parts.append(f"The first {shown:,} of {len(result.events):,} events.")
    return " ".join(parts)
