"""Shapes that do not fit: which dimension, and where each shape came from."""

from __future__ import annotations

import re

from lab.contract import Site
from lab.experiments.tensor_anatomy.faults.told import Explained, births, described, places
from lab.experiments.tensor_anatomy.layout import misfit
from lab.experiments.tensor_anatomy.watch.assemble import refusal_of
from lab.experiments.tensor_anatomy.watch.calls import Refused
from lab.experiments.tensor_anatomy.watch.states import State
from lab.experiments.tensor_anatomy.watch.words import said
from lab.quantities import bytes_text


def view(refused: Refused, source: str) -> Explained | None:
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
    sites = places((record.cause_line, "strides from here", state.label), (refused.line, "fails here", state.label))
    return Explained(text, "Use reshape (it copies where it must), or .contiguous() before view.", sites)


def matmul(refused: Refused, source: str) -> Explained | None:
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
        f"{described(a, refused)} and {described(b, refused)} cannot be multiplied: the last dimension of the left one, {inner_a}, "
        f"meets dimension {dim_b} of the right one, {inner_b}{_holds_out_in(b) if linear else ''}."
    )
    if not linear and len(a.shape) > 1 and len(b.shape) > 1 and a.shape[-1] == b.shape[-1]:
        repair = f"Transpose the right one: {a.label} @ {b.label}.mT."
    elif linear:
        repair = f"Give the layer {inner_a} input features, or bring the input to {inner_b}."
    else:
        repair = "The two inner sizes must be equal: transpose, reshape, or change the layer."
    return Explained(text, repair, births(refused, pair))


def _holds_out_in(weight: State) -> str:
    return f" (a linear layer holds its weight as (out, in) = {list(weight.shape)})"


def elementwise(refused: Refused, source: str) -> Explained | None:
    shaped = [state for state in refused.states if state.shape]
    for a, b in ((a, b) for i, a in enumerate(shaped) for b in shaped[i + 1 :]):
        found = misfit(a.shape, b.shape)
        if found:
            back, m, n = found
            text = (
                f"{described(a, refused)} and {described(b, refused)} do not fit together in {said(refused.op)}. Shapes are compared from the "
                f"last dimension; dimension {back} has {m} against {n}, and sizes must be equal or 1."
            )
            wanted = _axis_hint(a, b, m, n)
            return Explained(text, wanted, births(refused, [a, b]))
    return None


def _axis_hint(a: State, b: State, m: int, n: int) -> str:
    short, long = (a, b) if len(a.shape) < len(b.shape) else (b, a)
    if len(short.shape) == 1 and short.shape[0] in long.shape[:-1]:
        dim = long.shape.index(short.shape[0])
        ones = ", ".join(["None"] * (len(long.shape) - 1 - dim))
        return f"If {short.label} belongs to dimension {dim} of {long.label}, write {short.label}[:, {ones}]."
    return "Print both shapes on the line before; give the smaller one a dimension of 1 where it is to be repeated."


def numel(refused: Refused, source: str) -> Explained | None:
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
    text = f"{described(state, refused)} has {count} elements; {asked}."
    return Explained(text, "Change the sizes, or leave one of them to torch with -1.", births(refused, [state]))


def channels(refused: Refused, source: str) -> Explained | None:
    if len(refused.states) < 2:
        return None
    given, weight = refused.states[:2]
    channels = next((n for n in (given.shape[1:2] or ()) if len(given.shape) == len(weight.shape)), None)
    text = f"{described(given, refused)} meets the kernel {weight.label} of shape {list(weight.shape)}, which reads {weight.shape[1]} channels in dimension 1."
    repair = "Bring the input to (batch, channels, height, width)."
    if channels is not None and given.shape[-1] == weight.shape[1] != channels:
        order = ", ".join(map(str, (0, len(given.shape) - 1, *range(1, len(given.shape) - 1))))
        repair = f"The channels stand last: {given.name or 'x'}.permute({order})."
        text += f" The input has {channels} there and {given.shape[-1]} in the last dimension."
    return Explained(text, repair, births(refused, [given, weight]))


def features(refused: Refused, source: str) -> Explained | None:
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
    text = f"{layer}: {described(given, refused)} has {given.shape[dim]} there, and the layer was made for {wanted}."
    repair = f"Make the layer for {given.shape[dim]}."
    if other is not None:
        text += f" Dimension {other} has {wanted}."
        repair = f"Exchange the two: {given.name or 'x'}.transpose({min(dim, other)}, {max(dim, other)})."
    return Explained(text, repair, births(refused, [given]))


def classes_last(refused: Refused, source: str) -> Explained | None:
    if len(refused.states) < 2:
        return None
    scores, target = refused.states[:2]
    if len(scores.shape) < 3 or scores.shape[:-1] != target.shape:
        return None
    text = (
        f"{refused.op} looks for the classes in dimension 1. {described(scores, refused)} has {scores.shape[1]} there; the target "
        f"{list(target.shape)} fits its first dimensions, so the {scores.shape[-1]} classes stand last."
    )
    return Explained(
        text,
        f"Join the other dimensions: {scores.name or 'scores'}.flatten(0, -2) and {target.name or 'target'}.flatten().",
        births(refused, [scores, target]),
    )


def dimension(refused: Refused, source: str) -> Explained | None:
    """A dimension that is asked for and is not there: where did it go?"""
    asked = re.search(r"but got (-?\d+)\)", refused.message)
    state = refused.states[0] if refused.states else None
    if not asked or state is None:
        return None
    lost = state.first(
        lambda s: any(len(p.shape) > len(s.shape) for p in s.parents if p.numel == s.numel or s.op == "getitem")
    )
    text = f"{described(state, refused)} has {len(state.shape)} dimension{'s' * (len(state.shape) != 1)}; {said(refused.op)} asks for dimension {asked[1]}."
    sites = [Site(refused.line, "fails here", state.label)] if refused.line else []
    if lost is not None and lost.line:
        before = max((p.shape for p in lost.parents), key=len)
        text += f" {said(lost.op)} on line {lost.line} made {list(lost.shape)} of {list(before)}."
        sites.insert(0, Site(lost.line, "dimension gone here", lost.label, str(list(before)), str(list(lost.shape))))
    return Explained(
        text, "Keep the dimension (squeeze with its number, keepdim=True), or put it back with unsqueeze.", tuple(sites)
    )


def letters(refused: Refused, source: str) -> Explained | None:
    """An einsum whose letter has two sizes."""
    equation = next((value for value in refused.plain if isinstance(value, str)), "")
    terms = equation.replace(" ", "").split("->")[0].split(",")
    if len(terms) != len(refused.states) or "." in equation:
        return None
    sizes: dict[str, tuple[int, State]] = {}
    for term, state in zip(terms, refused.states, strict=True):
        if len(term) != len(state.shape):
            text = f"{term} has {len(term)} letters, and {described(state, refused)} has {len(state.shape)} dimensions."
            return Explained(text, "One letter for each dimension.", births(refused, [state]))
        for letter, size in zip(term, state.shape, strict=True):
            known = sizes.setdefault(letter, (size, state))
            if known[0] != size and 1 not in (known[0], size):
                text = f"The letter {letter} of {equation} stands for {known[0]} in {described(known[1], refused)} and for {size} in {described(state, refused)}."
                return Explained(
                    text,
                    "Letters of one name need one size: compare them with the shapes, in order.",
                    births(refused, [known[1], state]),
                )
    return None


def cat(refused: Refused, source: str) -> Explained | None:
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
    text = f"{rule}: {described(first, refused)}, {described(odd, refused)}.{where}"
    return Explained(
        text,
        "Pad or cut them to equal sizes first." if dims else "Bring both to the same number of dimensions.",
        births(refused, [odd, first]),
    )


def _differ(a: State, b: State) -> bool:
    return len(a.shape) != len(b.shape) or sum(m != n for m, n in zip(a.shape, b.shape, strict=True)) > 0
