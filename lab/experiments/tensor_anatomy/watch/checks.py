"""All checks together: called around every operation, and once at the end."""

from __future__ import annotations

import ast
import linecache
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from lab.contract import Site
from lab.experiments.tensor_anatomy.einsum import read_einsum
from lab.experiments.tensor_anatomy.watch import arrays as numpy_side
from lab.experiments.tensor_anatomy.watch import shapes, values
from lab.experiments.tensor_anatomy.watch.states import State
from lab.experiments.tensor_anatomy.watch.tensor_trace import Call, Checks, Row, TensorTrace
from lab.instruments.describing.names import named_tensors
from lab.records.tensors import Einsum, Note

_LOOKS = (
    *(
        shapes.both_expanded,
        shapes.misaligned,
        shapes.read_again,
        shapes.squeezed_batch,
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
_LARGE_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Write:
    """One in-place write."""

    line: int | None
    moment: int
    """Number of the operation."""
    through: State


class ProgramChecks(Checks):
    """Notes of one program, each kind once a line."""

    def __init__(self, trace: TensorTrace) -> None:
        self.trace = trace
        self.notes: dict[tuple[Any, ...], Note] = {}
        self.einsums: list[Einsum] = []
        self.writes: dict[int, list[Write]] = {}
        """By storage, in order."""
        self.returned: dict[tuple[int | None, str], bool] = {}
        """(line, operation) -> whether the result was the input itself."""
        self.copied_index: set[int | None] = set()
        """Lines where an indexing made a copy and the copy was written."""

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
            elif call.op in shapes.LOST and call.direct:
                same = self.returned.get((call.line, call.op), True)
                self.returned[call.line, call.op] = same and row.kind == "same object"

    def _wrote(self, call: Call, row: Row) -> None:
        lines = self.writes.setdefault(row.state.storage or 0, [])
        if len(lines) < 1000:
            lines.append(Write(call.line, self.trace.states.clock, row.state))
        target = next((state for state in call.states if state is row.state), row.state)
        if (
            call.op in ("setitem", "add_", "mul_", "sub_", "fill_", "copy_", "div_")
            and target.op == "getitem"
            and target.kind == "new memory"
            and target.line == call.line
        ):
            self.copied_index.add(call.line)
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
        late = [
            *self._lost(tree),
            *self._chained(tree),
            *self._aliases(tree, ended),
            *self._snapshots(ended, scope),
            *self._arrays(tree, scope),
            *self._held(scope),
        ]
        for note in late:
            self.add(note)
        return tuple(note for note in self.notes.values() if self._stands(note, tree))

    def _stands(self, note: Note, tree: ast.Module) -> bool:
        """A lost addition is told of a running sum only: in place, or under its own name, and more than once."""
        if note.kind != "lost addition":
            return True
        running = note.evidence["in_place"] or _adds_to_itself(tree, note.line)
        return running and note.times > 1

    def _lost(self, tree: ast.Module) -> Iterator[Note]:
        for line, method, receiver in shapes.lost_results(tree):
            same = self.returned.get((line, method))
            if same is not None and not method.endswith("_"):
                yield Note(
                    "result dropped", line, {"op": method, "tensor": receiver, "same_object": same},
                    (Site(line, "result dropped here", receiver),),
                )  # fmt: skip

    def _chained(self, tree: ast.Module) -> Iterator[Note]:
        for line, target in shapes.chained_assignments(tree):
            if line in self.copied_index:
                yield Note(
                    "copy written", line, {"target": target, "changed": 0}, (Site(line, "writes into a copy", target),)
                )

    def _aliases(self, tree: ast.Module, ended: dict[str, State]) -> Iterator[Note]:
        """Entries of one list that are the same memory, with writes in between; arrays that were taken more than once."""
        groups: dict[tuple[Any, ...], list[State]] = {}
        for name, state in ended.items():
            if "[" in name and state.storage is not None:
                key = (name.split("[")[0], state.storage, state.offset, state.shape, state.stride)
                groups.setdefault(key, []).append(state)
        for (holder, storage, *_), entries in groups.items():
            wrote = self.writes.get(storage, [])
            if len(entries) > 1 and wrote:
                yield self._alias(
                    holder, len(entries), _appended(tree, holder) or entries[-1].line, wrote, entries[0].op
                )
        taken: dict[tuple[int, int | None], int] = {}
        for shared in self.trace.arrays.shared:
            if shared.exported and shared.array() is not None:
                taken[shared.storage, shared.line] = taken.get((shared.storage, shared.line), 0) + 1
        for (storage, line), count in taken.items():
            wrote = self.writes.get(storage, [])
            if count > 1 and wrote:
                yield self._alias("", count, line, wrote, "numpy")

    def _snapshots(self, ended: dict[str, State], scope: dict[str, Any]) -> Iterator[Note]:
        """What looks like a copy of earlier values and is the memory itself, written since through another name."""
        told: set[tuple[str, int | None]] = set()
        for name, state in (*ended.items(), *self._in_dicts(scope)):
            if state.op not in ("detach", "data") or state.storage is None:
                continue
            later = [w for w in self.writes.get(state.storage, []) if w.moment > state.born and w.through is not state]
            inside = "[" in name
            holder = name.split("[")[0]
            if later and (inside or state.used > later[0].moment) and (holder, state.line) not in told:
                told.add((holder, state.line))
                yield self._snapshot(holder, state.op, state.line, later)
        named = {id(value): name for name, value in scope.items() if numpy_side.is_array(value)}
        for shared in self.trace.arrays.shared:
            array, wrote = shared.array(), self.writes.get(shared.storage, [])
            later = [w for w in wrote if w.moment > shared.moment]
            if (
                shared.exported
                and array is not None
                and id(array) in named
                and later
                and (named[id(array)], shared.line) not in told
            ):
                told.add((named[id(array)], shared.line))
                yield self._snapshot(named[id(array)], "numpy", shared.line, later)

    def _in_dicts(self, scope: dict[str, Any]) -> Iterator[tuple[str, State]]:
        """Entries of a state dict, which is no plain dict."""
        for name, value in list(scope.items()):
            if issubclass(type(value), OrderedDict):
                for key, tensor in islice(OrderedDict.items(value), 50):
                    state = self.trace.states.known(tensor) if isinstance(tensor, torch.Tensor) else None
                    if state is not None:
                        yield f"{name}[{key!r:.40}]", state

    def _snapshot(self, name: str, op: str, line: int | None, later: list[Write]) -> Note:
        written = later[0].through.label
        evidence = {"name": name, "op": op, "writes": len(later), "tensor": written}
        sites = [Site(line, "no copy here", name)] if line else []
        sites += [Site(w.line, "overwritten here", written) for w in later[:1] if w.line and w.line != line]
        return Note("no snapshot", line, evidence, tuple(sites))

    def _alias(self, holder: str, count: int, line: int | None, wrote: list[Write], op: str) -> Note:
        evidence = {"holder": holder, "entries": count, "writes": len(wrote), "op": op}
        sites = [Site(line, "no copy here", holder)] if line else []
        sites += [Site(at, "overwritten here") for at in dict.fromkeys(w.line for w in wrote[-2:]) if at and at != line]
        return Note("one memory", line, evidence, tuple(sites))

    def _arrays(self, tree: ast.Module, scope: dict[str, Any]) -> Iterator[Note]:
        told: set[tuple[int, int | None]] = set()
        for shared, before, after in self.trace.arrays.outside:
            names = {shared.name} if shared.name else set()
            array = shared.array()
            names |= {
                name
                for name, value in scope.items()
                if value is array or (numpy_side.is_array(value) and _shares(value, array))
            }
            lines = numpy_side.writing_lines(tree, names) or numpy_side.lines_in_functions(tree)
            between = [at for at in lines if (before or 0) <= at <= (after or 1 << 30)]
            line = (between or lines or [None])[-1]
            if (shared.storage, line) in told:
                continue
            told.add((shared.storage, line))
            tensors = [name for name, state in self.trace.naming.bound.items() if state.storage == shared.storage]
            evidence = {
                "array": sorted(names)[0] if names else "an array",
                "tensors": tensors,
                "between": [before, after],
            }
            sites = (Site(line, "written without torch", evidence["array"]),) if line else ()
            sites += (Site(shared.line, "memory shared here"),) if shared.line and shared.line != line else ()
            yield Note("outside write", line, evidence, sites)
        yield from self._rebound(tree, scope)

    def _rebound(self, tree: ast.Module, scope: dict[str, Any]) -> Iterator[Note]:
        """``a = a + 1`` after the memory was shared: the name has another array now."""
        for shared in self.trace.arrays.shared:
            now, array = scope.get(shared.name), shared.array()
            if shared.exported or not shared.name or not numpy_side.is_array(now) or now is array:
                continue
            if array is not None and _shares(now, array):
                continue
            for line, value in numpy_side.assigned_lines(tree, shared.name):
                uses = any(isinstance(n, ast.Name) and n.id == shared.name for n in ast.walk(value))
                tensors = [name for name, state in self.trace.naming.bound.items() if state.storage == shared.storage]
                if line > (shared.line or 0) and uses and tensors:
                    evidence = {"array": shared.name, "tensors": tensors}
                    sites = (
                        Site(line, "a new array from here", shared.name),
                        Site(shared.line or line, "shared here", tensors[0]),
                    )
                    yield Note("array rebound", line, evidence, sites)

    def _held(self, scope: dict[str, Any]) -> Iterator[Note]:
        """A small tensor that keeps a large piece of memory alive, where no other name uses the rest."""
        users: dict[int, list[tuple[str, torch.Tensor, State]]] = {}
        for name, tensor in named_tensors([scope]):
            if tensor.layout is not torch.strided or tensor.is_meta:
                continue
            state = self.trace.states.known(tensor)
            if state and state.storage is not None:
                users.setdefault(state.storage, []).append((name, tensor, state))
        for entries in users.values():
            bytes_held = entries[0][1].untyped_storage().nbytes()
            used = sum(t.numel() * t.element_size() for _, t, _ in {id(e[1]): e for e in entries}.values())
            if (
                bytes_held >= _LARGE_BYTES
                and used * 10 <= bytes_held
                and all(t.grad_fn is None for _, t, _ in entries)
                and not any(0 in s.stride for _, _, s in entries)
            ):
                name, _, state = entries[0]
                evidence = {"tensor": name, "used_bytes": used, "held_bytes": bytes_held, "op": state.op}
                yield Note(
                    "large memory held",
                    state.line,
                    evidence,
                    (Site(state.line, "view made here", name),) if state.line else (),
                )


def _shares(a: Any, b: Any) -> bool:
    return b is not None and a.base is not None and (a.base is b or a.base is b.base)


def _appended(tree: ast.Module, holder: str) -> int | None:
    """The line that puts something into a list of this name."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "insert")) if name == holder:
                return node.lineno
    return None


def _adds_to_itself(tree: ast.Module, line: int | None) -> bool:
    """``x = x + y`` on this line."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(left=left, right=right)) if (
                node.lineno == line
            ):
                return any(isinstance(side, ast.Name) and side.id == name for side in (left, right))
    return False


def program_text(file: str) -> str:
    return "".join(linecache.getlines(file))
