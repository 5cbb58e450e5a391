"""What to notice, computed from the result: of a program from what was checked while it ran, of a panel from its numbers."""

from __future__ import annotations

from lab.contract import Finding, by_level
from lab.experiments.tensor_anatomy.findings import panels, program, rounding, shapes
from lab.experiments.tensor_anatomy.schema import OF_PROGRAM, Result

MOST = 5


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST``, the most pressing first."""
    if result.view not in OF_PROGRAM:
        return tuple(by_level(panels.PANELS[result.view](result))[:MOST])
    told = [text(note) for note in result.notes if (text := _NOTES.get(note.kind))]
    return tuple(by_level([*told, *program.facts(result)])[:MOST])


_NOTES = shapes.NOTES | rounding.NOTES | program.NOTES
