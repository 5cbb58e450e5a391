"""Why a program ended early: operands, shapes, the axis that does not fit, and the line where each of them came from."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from lab.contract import Fault, Site
from lab.experiments.tensor_anatomy.layout import misfit
from lab.experiments.tensor_anatomy.watch import shapes
from lab.experiments.tensor_anatomy.watch.arrays import assigned_lines
from lab.experiments.tensor_anatomy.watch.assemble import refusal_of
from lab.experiments.tensor_anatomy.watch.states import State, dtype_of
from lab.experiments.tensor_anatomy.watch.tensor_trace import Refused
from lab.experiments.tensor_anatomy.watch.words import said
from lab.program.explain import Row, explain_fault
from lab.quantities import bytes_text
from lab.records.program import Ended


@dataclass(frozen=True)
class Explained:
    """A cause, what to do, and the lines that take part, the one to blame first."""

    text: str
    repair: str
    sites: tuple[Site, ...]
    only_listed: bool = False
    """It says no more than what went in."""


_ROWS = (
    Row(
        r"not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver",
        "This PyTorch sees no CUDA device, so no tensor can go to one.",
        "Ask which device there is: torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device('cpu').",
    ),
    Row(
        r"Cannot copy out of meta tensor",
        "A meta tensor has a shape and a dtype, but no data that could be copied.",
        "Use module.to_empty(device=...) and then load or initialise the values.",
    ),
    Row(
        r"element of tensors does not require grad|only one element tensors can be converted|cannot be converted to Scalar",
        "item(), float() and int() need a tensor with exactly one element.",
        "Reduce it first (.sum(), .mean()), index one element, or use .tolist().",
    ),
    Row(
        r"Boolean value of Tensor with more than one value is ambiguous",
        "if, and, or and not need one truth value; this tensor has several.",
        "Say which is meant: .all() or .any(); for element by element use &, | and ~.",
    ),
    Row(
        r"mean\(\): could not infer output dtype|mean\(\): .* should be floating point",
        "The mean of whole numbers is no whole number, and torch does not choose a format for it.",
        "Convert first: t.float().mean(), or mean(dtype=torch.float32).",
    ),
    Row(
        r"Got unsupported ScalarType BFloat16",
        "NumPy has no bfloat16.",
        "Convert first: t.float().numpy().",
    ),
    Row(
        r"some elements of the input tensor and the written-to tensor refer to a single memory location",
        "Source and target of this write overlap in memory, and which element would be read after it was written is not defined.",
        "Copy the source first: a[1:] = a[:-1].clone().",
    ),
)


def fault_of(ended: Ended | None, refused: list[Refused], source: str) -> Fault | None:
    """The fault of a program that ended early, with its cause where the record shows it."""
    if ended is None:
        return None
    plain = explain_fault(ended, rows=_ROWS)
    found = next((r for r in reversed(refused) if r.message[:200] == ended.message[:200]), None)
    try:
        why = explain(found, source) if found else None
    except Exception:
        logging.getLogger(__name__).exception("%s was not explained", ended.type)
        why = None
    if why is None:
        return Fault(ended.type, ended.message, ended.line, plain.explanation, plain.repair)
    told = f"{plain.explanation} {why.text}" if why.only_listed and plain.explanation else why.text
    text = f"It was raised in {ended.module}. {told}" if ended.module and not told.startswith("It was raised") else told
    return Fault(ended.type, ended.message, ended.line, text, why.repair or plain.repair, why.sites)


def explain(refused: Refused, source: str) -> Explained | None:
    """The cause of one refusal; None where the record shows none."""
    for pattern, answer in _ANSWERS:
        if re.search(pattern, refused.message):
            found = answer(refused, source)
            if found is not None:
                return found
    return _devices(refused, source) or _listed(refused)


def _view(refused: Refused, source: str) -> Explained | None:
    record = refusal_of(refused)
    if record is None:
        return None
    state = refused.states[0]
    because = f"{said(record.cause_op)} on line {record.cause_line}" if record.cause_line else "what it was made from"
    text = f"{state.label} has shape {list(record.shape)} and strides {list(record.stride)}."
    if record.apart:
        first, second = record.apart
        wanted = record.shape[second] * record.stride[second]
        text += (
            f" The new shape joins dimension {first} with dimension {second}, but they are no neighbours in memory: "
            f"a step along dimension {first} is {record.stride[first]} elements, and would have to be {wanted}."
        )
    text += f" The strides are so since {because}. reshape would copy {bytes_text(record.copy_bytes)}."
    sites = _sites((record.cause_line, "strides from here", state.label), (refused.line, "fails here", state.label))
    return Explained(text, "Use reshape (it copies where it must), or .contiguous() before view.", sites)


def _matmul(refused: Refused, source: str) -> Explained | None:
    pair = [state for state in refused.states if len(state.shape) > 0][:2]
    if len(pair) < 2:
        return None
    a, b = pair
    linear = refused.op == "linear"
    inner_a = a.shape[-1]
    inner_b = b.shape[-1] if linear or len(b.shape) == 1 else b.shape[-2]
    if inner_a == inner_b:
        return None
    dim_b = len(b.shape) - 1 if linear or len(b.shape) == 1 else len(b.shape) - 2
    text = (
        f"{_shaped(a, refused)} and {_shaped(b, refused)} cannot be multiplied: the last dimension of the left one, {inner_a}, "
        f"meets dimension {dim_b} of the right one, {inner_b}{_holds_out_in(b) if linear else ''}."
    )
    if not linear and len(a.shape) > 1 and len(b.shape) > 1 and a.shape[-1] == b.shape[-1]:
        repair = f"Transpose the right one: {a.label} @ {b.label}.mT."
    elif linear:
        repair = f"Give the layer {inner_a} input features, or bring the input to {inner_b}."
    else:
        repair = "The two inner sizes must be equal: transpose, reshape, or change the layer."
    return Explained(text, repair, _births(refused, pair))


def _holds_out_in(weight: State) -> str:
    return f" (a linear layer holds its weight as (out, in) = {list(weight.shape)})"


def _elementwise(refused: Refused, source: str) -> Explained | None:
    shaped = [state for state in refused.states if state.shape]
    for a, b in ((a, b) for i, a in enumerate(shaped) for b in shaped[i + 1 :]):
        found = misfit(a.shape, b.shape)
        if found:
            back, m, n = found
            text = (
                f"{_shaped(a, refused)} and {_shaped(b, refused)} do not fit together in {said(refused.op)}. Shapes are compared from the "
                f"last dimension; dimension {back} has {m} against {n}, and sizes must be equal or 1."
            )
            wanted = _axis_hint(a, b, m, n)
            return Explained(text, wanted, _births(refused, [a, b]))
    return None


def _axis_hint(a: State, b: State, m: int, n: int) -> str:
    short, long = (a, b) if len(a.shape) < len(b.shape) else (b, a)
    if len(short.shape) == 1 and short.shape[0] in long.shape[:-1]:
        dim = long.shape.index(short.shape[0])
        ones = ", ".join(["None"] * (len(long.shape) - 1 - dim))
        return f"If {short.label} belongs to dimension {dim} of {long.label}, write {short.label}[:, {ones}]."
    return "Print both shapes on the line before; give the smaller one a dimension of 1 where it is to be repeated."


def _numel(refused: Refused, source: str) -> Explained | None:
    if not refused.states:
        return None
    state = refused.states[0]
    sizes = [
        v
        for value in refused.plain
        for v in (value if isinstance(value, (list, tuple)) else (value,))
        if isinstance(v, int)
    ]
    count, known = state.numel, 1
    for size in sizes:
        known *= 1 if size == -1 else size
    asked = f"{count} is no multiple of {known}" if -1 in sizes else f"{sizes} would hold {known}"
    text = f"{_shaped(state, refused)} has {count} elements; {asked}."
    return Explained(text, "Change the sizes, or leave one of them to torch with -1.", _births(refused, [state]))


def _dtypes(refused: Refused, source: str) -> Explained | None:
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


def _devices(refused: Refused, source: str) -> Explained | None:
    placed = [state for state in refused.states if state.shape or state.device != "cpu"]
    if len({state.device for state in placed}) < 2:
        return None
    told = ", ".join(f"{state.label} is on {state.device}{_since_device(state)}" for state in _unique(placed))
    text = f"All tensors of one operation must be on one device. In {said(refused.op)}: {told}."
    if any(state.device == "meta" for state in placed):
        text += " meta is a device of its own: shapes without data."
    away = next((s for s in placed if s.device == "meta"), placed[0])
    repair = (
        f'Make {away.label} with data: leave device="meta" out, or use to_empty(device=...) and load values.'
        if away.device == "meta"
        else "Move the model once, and every batch: x = x.to(device). A tensor's .to returns a new tensor."
    )
    sites = shapes.device_sites(refused.line, placed)
    ordered = tuple(s for s in sites if s.line != refused.line) + tuple(s for s in sites if s.line == refused.line)
    return Explained(text, repair, ordered)


def _since_device(state: State) -> str:
    born = state.first(lambda s: all(p.device != s.device for p in s.parents)) or state
    return f" since line {born.line}" if born.line else ""


def _unique(states: list[State]) -> list[State]:
    return list({state.number: state for state in states}.values())[:4]


def _written_expanded(refused: Refused, source: str) -> Explained | None:
    state = next((s for s in refused.states if 0 in s.stride and s.numel > 1), None)
    if state is None:
        return None
    dims = [d for d, (n, step) in enumerate(zip(state.shape, state.stride, strict=True)) if step == 0 and n > 1]
    born = state.first(lambda s: 0 in s.stride and all(0 not in p.stride for p in s.parents)) or state
    if not dims:
        return None
    text = (
        f"{state.label} has stride 0 in dimension {dims[0]}: {said(born.op)}{_on(born.line)} repeats {state.shape[dims[0]]} elements "
        "without copying, so one write would hit all of them."
    )
    sites = _sites((born.line, "stride 0 from here", state.label), (refused.line, "fails here", state.label))
    return Explained(text, f"Copy first: {state.name or 't'}.clone().", sites)


def _negative_stride(refused: Refused, source: str) -> Explained | None:
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
        f"{name or 'The array'} is a flipped view: NumPy describes it with a negative stride, {strides} bytes{_on(line)}. A tensor "
        "cannot have one. torch.flip copies instead."
    )
    sites = _sites((line, "flipped here", name), (refused.line, "fails here", name))
    return Explained(text, f"Copy before: torch.from_numpy({name or 'array'}.copy()).", sites)


def _flips(value: ast.expr) -> bool:
    return "flip" in ast.unparse(value) or "rot90" in ast.unparse(value)


def _array_dtype(refused: Refused, source: str) -> Explained | None:
    dtype = refused.array_facts.get("dtype")
    if not dtype:
        return None
    name = refused.array or "The array"
    lines = [line for line, _ in assigned_lines(ast.parse(source), refused.array)] if refused.array else []
    before = [line for line in lines if not refused.line or line <= refused.line]
    line = before[-1] if before else None
    text = f"{name}{_on(line)} has the dtype {dtype}, for which torch has none."
    sites = _sites((line, "made here", refused.array), (refused.line, "fails here", refused.array))
    return Explained(text, "Convert first: array.astype(np.float32).", sites)


def _index(refused: Refused, source: str) -> Explained | None:
    table = next((s for s in refused.states if s.number not in refused.largest and len(s.shape) >= 2), None)
    index = next((s for s in refused.states if s.number in refused.largest), None)
    if table is None or index is None:
        return None
    largest, rows = refused.largest[index.number], table.shape[0]
    if largest < rows:
        return None
    text = (
        f"{index.label}{_on(index.line)} holds the index {largest}; {_shaped(table, refused)} has rows 0 to {rows - 1}."
    )
    return Explained(
        text,
        f"Give the table at least {largest + 1} rows, or check how the indices are made.",
        _births(refused, [index, table]),
    )


def _index_dtype(refused: Refused, source: str) -> Explained | None:
    wrong = next((s for s in refused.states[1:] if s.dtype.is_floating_point), None)
    wrong = wrong or next((s for s in refused.states if s.dtype.is_floating_point and len(s.shape) < 2), None)
    if wrong is None:
        return None
    text = f"{wrong.label}{_on(wrong.line)} is {dtype_of(wrong)}; {said(refused.op)} takes whole numbers as indices."
    sites = _sites((wrong.line, f"{dtype_of(wrong)} from here", wrong.label), (refused.line, "fails here", refused.op))
    return Explained(text, f"Convert it: {wrong.name or 'index'}.long().", sites)


def _target_class(refused: Refused, source: str) -> Explained | None:
    index = next((s for s in refused.states if s.number in refused.largest), None)
    scores = next((s for s in refused.states if s.number not in refused.largest and len(s.shape) >= 2), None)
    if index is None or scores is None or refused.largest[index.number] < scores.shape[1]:
        return None
    text = f"{index.label}{_on(index.line)} holds class {refused.largest[index.number]}; {_shaped(scores, refused)} scores the classes 0 to {scores.shape[1] - 1}."
    return Explained(
        text,
        "Count classes from 0, and give the last layer as many outputs as there are classes.",
        _births(refused, [index, scores]),
    )


def _channels(refused: Refused, source: str) -> Explained | None:
    if len(refused.states) < 2:
        return None
    given, weight = refused.states[:2]
    channels = next((n for n in (given.shape[1:2] or ()) if len(given.shape) == len(weight.shape)), None)
    text = f"{_shaped(given, refused)} meets the kernel {weight.label} of shape {list(weight.shape)}, which reads {weight.shape[1]} channels in dimension 1."
    repair = "Bring the input to (batch, channels, height, width)."
    if channels is not None and given.shape[-1] == weight.shape[1] != channels:
        order = ", ".join(map(str, (0, len(given.shape) - 1, *range(1, len(given.shape) - 1))))
        repair = f"The channels stand last: {given.name or 'x'}.permute({order})."
        text += f" The input has {channels} there and {given.shape[-1]} in the last dimension."
    return Explained(text, repair, _births(refused, [given, weight]))


def _features(refused: Refused, source: str) -> Explained | None:
    """A BatchNorm or LayerNorm made for another number of features."""
    if len(refused.states) < 2:
        return None
    given = refused.states[0]
    made = next((s for s in refused.states[1:] if len(s.shape) == 1), None)
    if made is None or len(given.shape) < 2:
        return None
    wanted, dim = made.shape[0], 1 if refused.op == "batch_norm" else len(given.shape) - 1
    other = next((d for d, size in enumerate(given.shape) if size == wanted and d not in (0, dim)), None)
    layer = (
        "BatchNorm counts its channels in dimension 1"
        if refused.op == "batch_norm"
        else "LayerNorm takes the last dimension"
    )
    text = f"{layer}: {_shaped(given, refused)} has {given.shape[dim]} there, and the layer was made for {wanted}."
    repair = f"Make the layer for {given.shape[dim]}."
    if other is not None:
        text += f" Dimension {other} has {wanted}."
        repair = f"Exchange the two: {given.name or 'x'}.transpose({min(dim, other)}, {max(dim, other)})."
    return Explained(text, repair, _births(refused, [given]))


def _classes_last(refused: Refused, source: str) -> Explained | None:
    if len(refused.states) < 2:
        return None
    scores, target = refused.states[:2]
    if len(scores.shape) < 3 or scores.shape[:-1] != target.shape:
        return None
    text = (
        f"{refused.op} looks for the classes in dimension 1. {_shaped(scores, refused)} has {scores.shape[1]} there; the target "
        f"{list(target.shape)} fits its first dimensions, so the {scores.shape[-1]} classes stand last."
    )
    return Explained(
        text,
        f"Join the other dimensions: {scores.name or 'scores'}.flatten(0, -2) and {target.name or 'target'}.flatten().",
        _births(refused, [scores, target]),
    )


def _dimension(refused: Refused, source: str) -> Explained | None:
    """A dimension that is asked for and is not there: where did it go?"""
    asked = re.search(r"but got (-?\d+)\)", refused.message)
    state = refused.states[0] if refused.states else None
    if not asked or state is None:
        return None
    lost = state.first(
        lambda s: any(len(p.shape) > len(s.shape) for p in s.parents if p.numel == s.numel or s.op == "getitem")
    )
    text = f"{_shaped(state, refused)} has {len(state.shape)} dimension{'s' * (len(state.shape) != 1)}; {said(refused.op)} asks for dimension {asked[1]}."
    sites = [Site(refused.line, "fails here", state.label)] if refused.line else []
    if lost is not None and lost.line:
        before = max((p.shape for p in lost.parents), key=len)
        text += f" {said(lost.op)} on line {lost.line} made {list(lost.shape)} of {list(before)}."
        sites.insert(0, Site(lost.line, "dimension gone here", lost.label, str(list(before)), str(list(lost.shape))))
    return Explained(
        text, "Keep the dimension (squeeze with its number, keepdim=True), or put it back with unsqueeze.", tuple(sites)
    )


def _overlap(refused: Refused, source: str) -> Explained | None:
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


def _letters(refused: Refused, source: str) -> Explained | None:
    """An einsum whose letter has two sizes."""
    equation = next((value for value in refused.plain if isinstance(value, str)), "")
    terms = equation.replace(" ", "").split("->")[0].split(",")
    if len(terms) != len(refused.states) or "." in equation:
        return None
    sizes: dict[str, tuple[int, State]] = {}
    for term, state in zip(terms, refused.states, strict=True):
        if len(term) != len(state.shape):
            text = f"{term} has {len(term)} letters, and {_shaped(state, refused)} has {len(state.shape)} dimensions."
            return Explained(text, "One letter for each dimension.", _births(refused, [state]))
        for letter, size in zip(term, state.shape, strict=True):
            known = sizes.setdefault(letter, (size, state))
            if known[0] != size and 1 not in (known[0], size):
                text = f"The letter {letter} of {equation} stands for {known[0]} in {_shaped(known[1], refused)} and for {size} in {_shaped(state, refused)}."
                return Explained(
                    text,
                    "Letters of one name need one size: compare them with the shapes, in order.",
                    _births(refused, [known[1], state]),
                )
    return None


def _cat(refused: Refused, source: str) -> Explained | None:
    if len(refused.states) < 2:
        return None
    first = refused.states[0]
    odd = next(
        (s for s in refused.states[1:] if s.shape != first.shape and (refused.op == "stack" or _differ(first, s))), None
    )
    if odd is None:
        return None
    dims = [d for d, (m, n) in enumerate(zip(first.shape, odd.shape, strict=False)) if m != n]
    where = (
        f" They differ in dimension{'s' * (len(dims) > 1)} {', '.join(map(str, dims))}."
        if dims and len(first.shape) == len(odd.shape)
        else ""
    )
    rule = (
        "stack needs equal shapes"
        if refused.op == "stack"
        else f"{refused.op} needs equal sizes in all dimensions but the one that is joined"
    )
    text = f"{rule}: {_shaped(first, refused)}, {_shaped(odd, refused)}.{where}"
    return Explained(
        text,
        "Pad or cut them to equal sizes first." if dims else "Bring both to the same number of dimensions.",
        _births(refused, [odd, first]),
    )


def _differ(a: State, b: State) -> bool:
    return len(a.shape) != len(b.shape) or sum(m != n for m, n in zip(a.shape, b.shape, strict=True)) > 0


def _listed(refused: Refused) -> Explained | None:
    """Nothing more is known than what went in."""
    shaped = _unique(list(refused.states))
    if not shaped or not re.search(
        r"shape|size|dimension|dim |channels|expected .*D|out of range|broadcast|batch|elements|normalized",
        refused.message,
    ):
        return None
    text = f"Into {said(refused.op)} went {', '.join(_shaped(s, refused) for s in shaped)}."
    return Explained(text, "", _births(refused, shaped[:3]), only_listed=True)


_ANSWERS: tuple[tuple[str, Callable[[Refused, str], Explained | None]], ...] = (
    (r"view size is not compatible", _view),
    (r"stride in the given numpy array is negative", _negative_stride),
    (r"can't convert np\.ndarray of type|byte order|not a supported", _array_dtype),
    (
        r"expected .* same dtype|must have the same dtype|expected scalar type|have the same dtype|Input type .* and (weight|bias) type",
        _dtypes,
    ),
    (r"is not on the expected device|same device|at least two devices|Expected all tensors", _devices),
    (r"single memory location", _written_expanded),
    (r"single memory location", _overlap),
    (
        r"cannot be multiplied|size mismatch, got|inconsistent tensor size|Expected size for first two dimensions|batch1|must match.*matmul",
        _matmul,
    ),
    (
        r"must match the size of tensor b|not broadcastable|must match the existing size|shape mismatch|The size of tensor|doesn't match the broadcast shape",
        _elementwise,
    ),
    (r"is invalid for input of size|invalid for input", _numel),
    (r"index out of range|out of bounds", _index),
    (r"dtype int32/int64 for index|used as indices must be|scalar types: Long", _index_dtype),
    (r"Target .* is out of bounds", _target_class),
    (r"Dimension out of range", _dimension),
    (r"running_mean should contain|Given normalized_shape", _features),
    (r"Expected target size", _classes_last),
    (r"einsum\(\)", _letters),
    (r"to have \d+ channels|Given groups=", _channels),
    (r"Sizes of tensors must match except|stack expects each tensor|Tensors must have same number of dimensions", _cat),
    (r"Expected input batch_size|size of input|Using a target size", _elementwise),
)


def _births(refused: Refused, states: list[State]) -> tuple[Site, ...]:
    """Where each shape came from, the nearest to the fault first; the fault last."""
    sites = []
    for state in states:
        born = state.first(lambda s: all(p.shape != s.shape for p in s.parents)) or state
        if born.line and born.line != refused.line:
            sites.append(Site(born.line, "shape from here", state.label, None, str(list(state.shape))))
    return (*sites, *_sites((refused.line, "fails here", refused.op)))


def _shaped(state: State, refused: Refused) -> str:
    at = f" (line {state.line})" if state.line and state.line != refused.line else ""
    return f"{state.label} {list(state.shape)}{at}"


def _on(line: int | None) -> str:
    return f" on line {line}" if line else ""


def _sites(*places: tuple[int | None, str, str]) -> tuple[Site, ...]:
    return tuple(Site(line, role, tensor) for line, role, tensor in places if line)
