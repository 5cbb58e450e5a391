"""What can only be said when a program is over: dropped results, memory with two owners, arrays that went their own way."""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from lab.contract import Site
from lab.experiments.tensor_anatomy.watch import arrays as numpy_side
from lab.experiments.tensor_anatomy.watch import statements
from lab.experiments.tensor_anatomy.watch.states import State
from lab.experiments.tensor_anatomy.watch.tensor_trace import TensorTrace
from lab.instruments.describing.names import named_tensors
from lab.records.tensors import Note

_LARGE_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Write:
    """One in-place write."""

    line: int | None
    moment: int
    """Number of the operation."""
    through: State


class Seen:
    """What was kept while the program ran."""

    def __init__(self, trace: TensorTrace) -> None:
        self.trace = trace
        self.writes: dict[int, list[Write]] = {}
        """By storage, in order."""
        self.returned: dict[tuple[int | None, str], bool] = {}
        """(line, operation) -> whether the result was the input itself."""
        self.copied_index: set[int | None] = set()
        """Lines where an indexing made a copy and the copy was written."""


@dataclass(frozen=True)
class Ending:
    """The program as it is over."""

    seen: Seen
    tree: ast.Module
    scope: dict[str, Any]
    ended: dict[str, State]
    """Names of tensors at the end."""

    def notes(self) -> Iterator[Note]:
        """Of all kinds."""
        yield from self._lost()
        yield from self._chained()
        yield from self._aliases()
        yield from self._snapshots()
        yield from self._arrays()
        yield from self._held()

    def _lost(self) -> Iterator[Note]:
        for line, method, receiver in statements.lost_results(self.tree):
            same = self.seen.returned.get((line, method))
            if same is not None and not method.endswith("_"):
                yield Note(
                    "result dropped", line, {"op": method, "tensor": receiver, "same_object": same},
                    (Site(line, "result dropped here", receiver),),
                )  # fmt: skip

    def _chained(self) -> Iterator[Note]:
        for line, target in statements.chained_assignments(self.tree):
            if line in self.seen.copied_index:
                yield Note(
                    "copy written", line, {"target": target, "changed": 0}, (Site(line, "writes into a copy", target),)
                )

    def _aliases(self) -> Iterator[Note]:
        """Entries of one list that are the same memory, with writes in between; arrays that were taken more than once."""
        groups: dict[tuple[Any, ...], list[State]] = {}
        for name, state in self.ended.items():
            if "[" in name and state.storage is not None:
                key = (name.split("[")[0], state.storage, state.offset, state.shape, state.stride)
                groups.setdefault(key, []).append(state)
        for (holder, storage, *_), entries in groups.items():
            wrote = self.seen.writes.get(storage, [])
            if len(entries) > 1 and wrote:
                yield self._alias(
                    holder,
                    len(entries),
                    statements.appended(self.tree, holder) or entries[-1].line,
                    wrote,
                    entries[0].op,
                )
        taken: dict[tuple[int, int | None], int] = {}
        for shared in self.seen.trace.arrays.shared:
            if shared.exported and shared.array() is not None:
                taken[shared.storage, shared.line] = taken.get((shared.storage, shared.line), 0) + 1
        for (storage, line), count in taken.items():
            wrote = self.seen.writes.get(storage, [])
            if count > 1 and wrote:
                yield self._alias("", count, line, wrote, "numpy")

    def _snapshots(self) -> Iterator[Note]:
        """What looks like a copy of earlier values and is the memory itself, written since through another name."""
        told: set[tuple[str, int | None]] = set()
        for name, state in (*self.ended.items(), *self._in_dicts()):
            if state.op not in ("detach", "data") or state.storage is None:
                continue
            later = [
                w for w in self.seen.writes.get(state.storage, []) if w.moment > state.born and w.through is not state
            ]
            inside = "[" in name
            holder = name.split("[")[0]
            if later and (inside or state.used > later[0].moment) and (holder, state.line) not in told:
                told.add((holder, state.line))
                yield self._snapshot(holder, state.op, state.line, later)
        named = {id(value): name for name, value in self.scope.items() if numpy_side.is_array(value)}
        for shared in self.seen.trace.arrays.shared:
            array, wrote = shared.array(), self.seen.writes.get(shared.storage, [])
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

    def _in_dicts(self) -> Iterator[tuple[str, State]]:
        """Entries of a state dict, which is no plain dict."""
        for name, value in list(self.scope.items()):
            if issubclass(type(value), OrderedDict):
                for key, tensor in islice(OrderedDict.items(value), 50):
                    state = self.seen.trace.states.known(tensor) if isinstance(tensor, torch.Tensor) else None
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

    def _arrays(self) -> Iterator[Note]:
        told: set[tuple[int, int | None]] = set()
        for shared, before, after in self.seen.trace.arrays.outside:
            names = {shared.name} if shared.name else set()
            array = shared.array()
            names |= {
                name
                for name, value in self.scope.items()
                if value is array or (numpy_side.is_array(value) and _shares(value, array))
            }
            lines = numpy_side.writing_lines(self.tree, names) or numpy_side.lines_in_functions(self.tree)
            between = [at for at in lines if (before or 0) <= at <= (after or 1 << 30)]
            line = (between or lines or [None])[-1]
            if (shared.storage, line) in told:
                continue
            told.add((shared.storage, line))
            tensors = [name for name, state in self.seen.trace.naming.bound.items() if state.storage == shared.storage]
            evidence = {
                "array": sorted(names)[0] if names else "an array",
                "tensors": tensors,
                "between": [before, after],
            }
            sites = (Site(line, "written without torch", evidence["array"]),) if line else ()
            sites += (Site(shared.line, "memory shared here"),) if shared.line and shared.line != line else ()
            yield Note("outside write", line, evidence, sites)
        yield from self._rebound()

    def _rebound(self) -> Iterator[Note]:
        """``a = a + 1`` after the memory was shared: the name has another array now."""
        for shared in self.seen.trace.arrays.shared:
            now, array = self.scope.get(shared.name), shared.array()
            if shared.exported or not shared.name or not numpy_side.is_array(now) or now is array:
                continue
            if array is not None and _shares(now, array):
                continue
            for line, value in numpy_side.assigned_lines(self.tree, shared.name):
                uses = any(isinstance(n, ast.Name) and n.id == shared.name for n in ast.walk(value))
                tensors = [
                    name for name, state in self.seen.trace.naming.bound.items() if state.storage == shared.storage
                ]
                if line > (shared.line or 0) and uses and tensors:
                    evidence = {"array": shared.name, "tensors": tensors}
                    sites = (
                        Site(line, "a new array from here", shared.name),
                        Site(shared.line or line, "shared here", tensors[0]),
                    )
                    yield Note("array rebound", line, evidence, sites)

    def _held(self) -> Iterator[Note]:
        """A small tensor that keeps a large piece of memory alive, where no other name uses the rest."""
        users: dict[int, list[tuple[str, torch.Tensor, State]]] = {}
        for name, tensor in named_tensors([self.scope]):
            if tensor.layout is not torch.strided or tensor.is_meta:
                continue
            state = self.seen.trace.states.known(tensor)
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
