"""Dtypes, devices, memory, indices and arrays that do not go together, and where each of them began."""

from __future__ import annotations

import ast

from lab.contract import Site
from lab.experiments.tensor_anatomy.faults.told import Explained, births, described, on, places
from lab.experiments.tensor_anatomy.watch.arrays import assigned_lines
from lab.experiments.tensor_anatomy.watch.calls import Refused
from lab.experiments.tensor_anatomy.watch.shapes import device_sites
from lab.experiments.tensor_anatomy.watch.states import State, dtype_of
from lab.experiments.tensor_anatomy.watch.words import said


def dtypes(refused: Refused, source: str) -> Explained | None:
    weights = sorted(refused.states, key=lambda state: not state.name.endswith(".bias"))
    typed = list({state.dtype: state for state in weights}.values())
    if len(typed) < 2:
        return None
    told, sites = [], []
    rare = sorted(typed, key=lambda s: str(s.dtype) == "torch.float32")
    for state in rare[:3]:
        born = state.first(lambda s: all(p.dtype is not s.dtype for p in s.parents)) or state
        at = (
            f" since line {born.line} ({said(born.op)})"
            if born.line and born.op
            else f" since line {born.line}"
            if born.line
            else ""
        )
        told.append(f"{state.label} is {dtype_of(state)}{at}")
        if born.line and born.line != refused.line:
            sites.append(Site(born.line, f"{dtype_of(state)} from here", state.label))
    sites.append(Site(refused.line or 0, "fails here", refused.op))
    text = f"{said(refused.op)} does not convert between dtypes: {', '.join(told)}. Additions and other elementwise operations promote, products of matrices do not."
    first, wanted = rare[0], dtype_of(rare[-1])
    to = {"float32": "float()", "float64": "double()", "int64": "long()"}.get(wanted, f"to(torch.{wanted})")
    repair = f"Convert where it begins: {first.label}.{to}." if first.name else f"Convert one of them: .{to}."
    return Explained(text, repair, tuple(s for s in sites if s.line))


def devices(refused: Refused, source: str) -> Explained | None:
    placed = [state for state in refused.states if state.shape or state.device != "cpu"]
    if len({state.device for state in placed}) < 2:
        return None
    told = ", ".join(f"{state.label} is on {state.device}{_since_device(state)}" for state in unique(placed))
    text = f"All tensors of one operation must be on one device. In {said(refused.op)}: {told}."
    if any(state.device == "meta" for state in placed):
        text += " meta is a device of its own: shapes without data."
    away = next((s for s in placed if s.device == "meta"), placed[0])
    repair = (
        f'Make {away.label} with data: leave device="meta" out, or use to_empty(device=...) and load values.'
        if away.device == "meta"
        else "Move the model once, and every batch: x = x.to(device). A tensor's .to returns a new tensor."
    )
    sites = device_sites(refused.line, placed)
    ordered = tuple(s for s in sites if s.line != refused.line) + tuple(s for s in sites if s.line == refused.line)
    return Explained(text, repair, ordered)


def _since_device(state: State) -> str:
    born = state.first(lambda s: all(p.device != s.device for p in s.parents)) or state
    return f" since line {born.line}" if born.line else ""


def unique(states: list[State]) -> list[State]:
    return list({state.number: state for state in states}.values())[:4]


def written_expanded(refused: Refused, source: str) -> Explained | None:
    state = next((s for s in refused.states if 0 in s.stride and s.numel > 1), None)
    if state is None:
        return None
    dims = [d for d, (n, step) in enumerate(zip(state.shape, state.stride, strict=True)) if step == 0 and n > 1]
    born = state.first(lambda s: 0 in s.stride and all(0 not in p.stride for p in s.parents)) or state
    if not dims:
        return None
    text = (
        f"{state.label} has stride 0 in dimension {dims[0]}: {said(born.op)}{on(born.line)} repeats {state.shape[dims[0]]} elements "
        "without copying, so one write would hit all of them."
    )
    sites = places((born.line, "stride 0 from here", state.label), (refused.line, "fails here", state.label))
    return Explained(text, f"Copy first: {state.name or 't'}.clone().", sites)


def overlap(refused: Refused, source: str) -> Explained | None:
    shared = [
        state for state in refused.states if state.storage is not None and state.storage == refused.states[0].storage
    ]
    if len(shared) < 2 or not refused.line:
        return None
    text = f"Source and target are views of the memory of {shared[0].label}, shifted against each other. Which element would be read after it was written is not defined."
    return Explained(
        text,
        "Copy the source first: a[1:] = a[:-1].clone().",
        (
            Site(refused.line, "overlaps here", shared[0].label),
            *(
                (Site(shared[0].line, "made here", shared[0].label),)
                if shared[0].line and shared[0].line != refused.line
                else ()
            ),
        ),
    )


def index(refused: Refused, source: str) -> Explained | None:
    table = next((s for s in refused.states if s.number not in refused.largest and len(s.shape) >= 2), None)
    index = next((s for s in refused.states if s.number in refused.largest), None)
    if table is None or index is None:
        return None
    largest, rows = refused.largest[index.number], table.shape[0]
    if largest < rows:
        return None
    text = f"{index.label}{on(index.line)} holds the index {largest}; {described(table, refused)} has rows 0 to {rows - 1}."
    return Explained(
        text,
        f"Give the table at least {largest + 1} rows, or check how the indices are made.",
        births(refused, [index, table]),
    )


def index_dtype(refused: Refused, source: str) -> Explained | None:
    wrong = next((s for s in refused.states[1:] if s.dtype.is_floating_point), None)
    wrong = wrong or next((s for s in refused.states if s.dtype.is_floating_point and len(s.shape) < 2), None)
    if wrong is None:
        return None
    text = f"{wrong.label}{on(wrong.line)} is {dtype_of(wrong)}; {said(refused.op)} takes whole numbers as indices."
    sites = places((wrong.line, f"{dtype_of(wrong)} from here", wrong.label), (refused.line, "fails here", refused.op))
    return Explained(text, f"Convert it: {wrong.name or 'index'}.long().", sites)


def target_class(refused: Refused, source: str) -> Explained | None:
    index = next((s for s in refused.states if s.number in refused.largest), None)
    scores = next((s for s in refused.states if s.number not in refused.largest and len(s.shape) >= 2), None)
    if index is None or scores is None or refused.largest[index.number] < scores.shape[1]:
        return None
    text = f"{index.label}{on(index.line)} holds class {refused.largest[index.number]}; {described(scores, refused)} scores the classes 0 to {scores.shape[1] - 1}."
    return Explained(
        text,
        "Count classes from 0, and give the last layer as many outputs as there are classes.",
        births(refused, [index, scores]),
    )


def negative_stride(refused: Refused, source: str) -> Explained | None:
    name = refused.array
    lines = [
        (line, value)
        for line, value in assigned_lines(ast.parse(source), name)
        if not refused.line or line <= refused.line
    ]
    line = lines[-1][0] if name and lines else None
    if lines and isinstance(lines[-1][1], ast.Call) and not _flips(lines[-1][1]):
        line = lines[-1][0]
    strides = list(refused.array_facts.get("strides", ()))
    text = (
        f"{name or 'The array'} is a flipped view: NumPy describes it with a negative stride, {strides} bytes{on(line)}. A tensor "
        "cannot have one. torch.flip copies instead."
    )
    sites = places((line, "flipped here", name), (refused.line, "fails here", name))
    return Explained(text, f"Copy before: torch.from_numpy({name or 'array'}.copy()).", sites)


def _flips(value: ast.expr) -> bool:
    return "flip" in ast.unparse(value) or "rot90" in ast.unparse(value)


def array_dtype(refused: Refused, source: str) -> Explained | None:
    dtype = refused.array_facts.get("dtype")
    if not dtype:
        return None
    name = refused.array or "The array"
    lines = [line for line, _ in assigned_lines(ast.parse(source), refused.array)] if refused.array else []
    before = [line for line in lines if not refused.line or line <= refused.line]
    line = before[-1] if before else None
    text = f"{name}{on(line)} has the dtype {dtype}, for which torch has none."
    sites = places((line, "made here", refused.array), (refused.line, "fails here", refused.array))
    return Explained(text, "Convert first: array.astype(np.float32).", sites)
