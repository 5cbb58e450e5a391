"""From what was seen of a program to plain data."""

from __future__ import annotations

from typing import Any

import torch

from lab.experiments.tensor_anatomy.layout import asked_shape, broken_pair, flat_positions, runs
from lab.experiments.tensor_anatomy.watch.calls import Refused, Row
from lab.experiments.tensor_anatomy.watch.shapes import PROMOTES, expanded_inputs
from lab.experiments.tensor_anatomy.watch.states import State, dtype_of
from lab.experiments.tensor_anatomy.watch.tensor_trace import TensorTrace
from lab.instruments.describing.assigned import AssignedNames
from lab.instruments.describing.names import named_tensors
from lab.instruments.describing.values import is_readable
from lab.records.tensors import Bindings, Input, Line, Places, Refusal, Storages, Strip

POSITIONS, VALUES, STRIPS = 512, 64, 100
COPIES = {
    *("clone", "contiguous", "reshape", "flatten", "ravel", "to", "type", "float", "double", "half", "bfloat16", "int", "long"),
    *("getitem", "index_select", "gather", "masked_select", "take", "repeat", "tile", "repeat_interleave", "cat", "concat"),
    *("stack", "hstack", "vstack", "flip", "roll", "tensor", "as_tensor", "cpu", "cuda", "permute_copy", "take_along_dim"),
}  # fmt: skip
"""Operations whose result holds elements that were there before."""


def line_records(trace: TensorTrace, assigned: AssignedNames) -> tuple[Line, ...]:
    """A record a row, with the names that came later."""
    return tuple(_line(row, assigned) for row in trace.rows)


def _line(row: Row, assigned: AssignedNames) -> Line:
    state = row.state
    if not state.name and row.kind != "in place":
        state.name = assigned.name(row.line, row.op, *row.results)
    dtypes = {dtype_of(s) for s in row.inputs} if row.op in PROMOTES and row.kind != "in place" else set()
    return Line(
        line=row.line,
        op=row.op,
        kind=row.kind,
        name=state.name,
        shape=state.shape,
        stride=state.stride,
        offset=state.offset,
        dtype=dtype_of(state),
        new_bytes=row.new_bytes,
        shares_with=tuple(name for name in row.shares if name != state.name),
        expanded=tuple(s.label for s in expanded_inputs(row.op, row.inputs)),
        promoted_from=tuple(sorted(dtypes)) if len(dtypes) > 1 else (),
        device=state.device,
        storage=state.storage,
        tensor=state.number,
        module=row.module,
        inputs=tuple(Input(s.label, s.shape, dtype_of(s), s.line) for s in row.inputs[:8]),
    )


def storage_records(
    trace: TensorTrace, lines: tuple[Line, ...], scope: dict[str, Any], ended: dict[str, State]
) -> Storages:
    """Pieces of memory that a row or a name refers to."""
    named: dict[int, list[str]] = {}
    held: dict[int, torch.Tensor] = {}
    for name, tensor in named_tensors([scope]):
        state = ended.get(name)
        if state is not None and state.storage is not None:
            named.setdefault(state.storage, []).append(name)
            held[state.storage] = tensor
    known: dict[int, tuple[int, int | None, int]] = {}
    for line in lines:
        if line.storage is not None and line.storage not in known:
            birth = trace.states.births.get(line.storage)
            known[line.storage] = (line.new_bytes, line.line, birth.item_bytes if birth else 1)
    for number in held:
        birth = trace.states.births.get(number)
        known.setdefault(number, (0, birth.line if birth else None, birth.item_bytes if birth else 1))
    columns: list[tuple[Any, ...]] = []
    for number, (taken, line, item) in sorted(known.items())[:1000]:
        tensor = held.get(number)
        size = tensor.untyped_storage().nbytes() if tensor is not None and not tensor.is_meta else taken
        values = _contents(tensor) if tensor is not None else ()
        columns.append((number, size, tuple(named.get(number, ())), line, size // max(item, 1), item, values))
    return Storages(*(tuple(column) for column in zip(*columns, strict=True))) if columns else Storages()


def _contents(tensor: torch.Tensor) -> tuple[Any, ...]:
    """All of the memory behind it, where it is small."""
    if not is_readable(tensor) or tensor.is_conj() or tensor.is_neg() or tensor.device.type != "cpu":
        return ()
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    if size > VALUES or tensor.is_complex():
        return ()
    with torch.no_grad():
        return tuple(torch.as_strided(tensor.detach(), (size,), (1,), 0).tolist())


def strip_records(ended: dict[str, State]) -> tuple[Strip, ...]:
    """Where the elements of each name lie at the end."""
    return tuple(
        Strip(name, s.storage, tuple(flat_positions(s.shape, s.stride, s.offset, POSITIONS)), s.shape, s.stride, s.offset, s.numel)
        for name, s in list(ended.items())[:STRIPS]
        if s.storage is not None
    )  # fmt: skip


def binding_records(trace: TensorTrace) -> tuple[Bindings, Places]:
    """Names over the steps, and the tensors that they stand for."""
    events = trace.naming.events
    states = {state.number: state for _, _, state in events if state is not None}
    bindings = Bindings(
        tuple(step for step, _, _ in events),
        tuple(name for _, name, _ in events),
        tuple(state.number if state else None for _, _, state in events),
    )
    kept = list(states.values())
    places = Places(
        tuple(s.number for s in kept), tuple(s.shape for s in kept), tuple(s.stride for s in kept),
        tuple(s.offset for s in kept), tuple(dtype_of(s) for s in kept), tuple(s.storage for s in kept),
    )  # fmt: skip
    return bindings, places


def refusal_records(refused: list[Refused]) -> tuple[Refusal, ...]:
    """What is known of each ``view`` that torch refused."""
    return tuple(record for record in map(refusal_of, refused) if record)


def refusal_of(refused: Refused) -> Refusal | None:
    """The dimensions that are no neighbours, the line that made them so, and the price of a copy."""
    if refused.op != "view" or not refused.states or "view size is not compatible" not in refused.message:
        return None
    state = refused.states[0]
    sizes = [
        v
        for value in refused.plain
        for v in (value if isinstance(value, (list, tuple)) else (value,))
        if isinstance(v, int)
    ]
    asked = asked_shape(sizes, state.numel)
    if asked is None:
        return None
    broken = broken_pair(state.shape, state.stride, asked)
    cause = strides_from(state)
    return Refusal(
        refused.line, state.label, state.shape, state.stride, asked, tuple(runs(state.shape, state.stride)),
        (broken.first, broken.second) if broken else (), cause.line, cause.op, state.numel * state.item_bytes,
    )  # fmt: skip


def strides_from(state: State) -> State:
    """The step at which the elements stopped lying in the order of the indices."""
    found = state.first(lambda s: not s.contiguous and (not s.parents or any(p.contiguous for p in s.parents)))
    return found or state
