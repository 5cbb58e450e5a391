"""All checks together: called around every operation, and once at the end."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from lab.contract import Site
from lab.experiments.tensor_anatomy.einsum import read_einsum
from lab.experiments.tensor_anatomy.watch import shapes, statements, values
from lab.experiments.tensor_anatomy.watch.calls import Call, Checks, Row
from lab.experiments.tensor_anatomy.watch.endings import Ending, Seen, Write
from lab.experiments.tensor_anatomy.watch.states import State
from lab.experiments.tensor_anatomy.watch.tensor_trace import TensorTrace
from lab.records.tensors import Einsum, Note

_LOOKS = (
    *(
        shapes.both_expanded,
        shapes.misaligned,
        shapes.read_again,
        shapes.squeezed_batch,
        shapes.integer_mask,
        shapes.both_formats,
        shapes.mixed_devices,
    ),
    *(
        values.wrapped,
        values.cast_wrapped,
        values.rounded,
        values.overflowed,
        values.lost_addition,
        values.cut_fraction,
    ),
)


class ProgramChecks(Checks):
    """Notes of one program, each kind once a line."""

    def __init__(self, trace: TensorTrace) -> None:
        self.trace = trace
        self.notes: dict[tuple[Any, ...], Note] = {}
        self.einsums: list[Einsum] = []
        self.seen = Seen(trace)

    def begin(self, call: Call) -> None:
        call.before = values.keep_before(call)

    def end(self, call: Call, rows: list[Row], result: Any) -> None:
        shapes.note_reduction(call, rows)
        for look in _LOOKS:
            for note in look(call, rows, result):
                self.add(note)
        if call.op == "einsum" and len(self.einsums) < 20 and call.args and isinstance(call.args[0], str):
            found = read_einsum(call.args[0], [t for t, _, _ in call.inputs], result, call.line)
            if found and all((e.line, e.equation) != (found.line, found.equation) for e in self.einsums):
                self.einsums.append(found)
        for row in rows:
            if row.kind == "in place" and row.state.storage is not None:
                self._wrote(call, row)
            elif call.op in statements.LOST and call.direct:
                same = self.seen.returned.get((call.line, call.op), True)
                self.seen.returned[call.line, call.op] = same and row.kind == "same object"

    def _wrote(self, call: Call, row: Row) -> None:
        lines = self.seen.writes.setdefault(row.state.storage or 0, [])
        if len(lines) < 1000:
            lines.append(Write(call.line, self.trace.states.clock, row.state))
        target = next((state for state in call.states if state is row.state), row.state)
        if (
            call.op in ("setitem", "add_", "mul_", "sub_", "fill_", "copy_", "div_")
            and target.op == "getitem"
            and target.kind == "new memory"
            and target.line == call.line
        ):
            self.seen.copied_index.add(call.line)
        for shared in self.trace.arrays.shared:
            if shared.storage == row.state.storage and not shared.writeable:
                evidence = {
                    "array": shared.name or "the array",
                    "tensor": row.state.label,
                    "shared_on_line": shared.line,
                }
                sites = (
                    Site(call.line or 0, "written here", row.state.label),
                    Site(shared.line or 0, "shared here", shared.name),
                )
                self.add(Note("read-only written", call.line, evidence, tuple(s for s in sites if s.line)))

    def add(self, note: Note) -> None:
        key = (note.kind, note.line, note.evidence.get("op"), note.evidence.get("tensor"))
        known = self.notes.get(key)
        if known is not None:
            self.notes[key] = replace(known, times=known.times + 1)
        elif len(self.notes) < 200:
            self.notes[key] = note

    def finish(self, tree: ast.Module, scope: dict[str, Any], ended: dict[str, State]) -> tuple[Note, ...]:
        """Everything, with what can only be said at the end."""
        for note in Ending(self.seen, tree, scope, ended).notes():
            self.add(note)
        return tuple(note for note in self.notes.values() if self._stands(note, tree))

    def _stands(self, note: Note, tree: ast.Module) -> bool:
        """A lost addition is told of a running sum only: in place, or under its own name, and more than once."""
        if note.kind != "lost addition":
            return True
        running = note.evidence["in_place"] or statements.adds_to_itself(tree, note.line)
        return running and note.times > 1
