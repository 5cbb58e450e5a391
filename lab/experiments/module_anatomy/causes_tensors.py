"""Errors about tensors: carrying a graph, without a shape, in another dtype or place, in two groups."""

from __future__ import annotations

import re

from lab.contract import Edit
from lab.experiments.module_anatomy.cause import Cause, repair_of
from lab.experiments.module_anatomy.words import counted, listed, site
from lab.records.anatomy import AnatomyResult, TensorRow


def not_copied(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    held = [t for t in result.tensors if t.computed] or _computed(result)
    if not held:
        return None
    first = held[0]
    if first.line is None and not first.kind.startswith("parameter that"):
        return _computed_by_torch(first, line)
    lost = first.kind.startswith("parameter that")
    why = (
        "It is the result of converting a Parameter"
        if lost
        else "A forward put it there, with the graph that made it"
        if first.in_forward
        else "It is the result of operations and carries their graph"
    )
    hanging = next((u for u in result.unregistered if first.name.startswith(u.path)), None)
    return Cause(
        f"{first.name} carries a graph",
        f"{first.name} is no leaf. {why}, which stays alive as long as the attribute does. A deep copy takes leaves only.",
        hanging.repair if hanging else "Keep t.detach() instead of t.",
        (*site(first.line, "kept here", first.name), *site(line, "fails here")),
        repair_of(result, hanging) if hanging else (),
        {"tensors with a graph": len(held)},
    )


def _computed_by_torch(first: TensorRow, line: int | None) -> Cause:
    return Cause(
        f"{first.name} is computed, and kept as an attribute",
        f"{first.name} is the result of operations and was put there by a hook of torch, as the weight_norm of old does before each call. A "
        "deep copy takes leaves only.",
        "Use torch.nn.utils.parametrizations.weight_norm, which keeps no result, or copy before the first call.",
        site(line, "fails here", first.name),
    )


def _computed(result: AnatomyResult) -> list[TensorRow]:
    return [t for t in result.tensors if not t.kind.startswith(("parameter", "buffer")) and t.computed]


def lazy(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    if not result.lazy:
        return None
    rows = [t for t in result.tensors if t.name in result.lazy and t.line]
    lines = tuple(dict.fromkeys(t.line for t in rows if t.line))[:2]
    return Cause(
        f"{counted(len(result.lazy), 'parameter')} without a shape yet",
        f"{listed(result.lazy)} {'is' if len(result.lazy) == 1 else 'are'} lazy: the first call of the model gives the shape. An optimizer may be built before, for the "
        "object stays the same; counting, and everything else that needs a shape, may not.",
        "Run one batch through the model before this line.",
        tuple(s for at in lines for s in site(at, "made without a shape")) + site(line, "fails here"),
        (),
        {"lazy parameters": len(result.lazy)},
    )


def mixed_dtypes(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    for conversion in result.conversions[::-1]:
        if conversion.left:
            name, dtype = conversion.left[0].split(" ")[0], conversion.left[0].partition("(")[2].rstrip(")")
            row = next((t for t in result.tensors if t.name == name), None)
            hanging = next((u for u in result.unregistered if name.startswith(u.path)), None)
            at = row.line if row else None
            others = (
                f" So did {listed(tuple(n.split(' ')[0] for n in conversion.left[1:]))}." if conversion.left[1:] else ""
            )
            return Cause(
                f"{name} stayed behind in {dtype}",
                f"{conversion.call}() on line {conversion.line} converted what is registered to {conversion.dtype}. {name} is not, so it is "
                f"{dtype} still.{others} Where it meets the others they are promoted to it, or the operation is refused, there or later.",
                hanging.repair if hanging else "Register it.",
                (
                    *site(at, "not registered", name),
                    *site(conversion.line, "converted here", before=dtype, after=conversion.dtype),
                    *site(line, "fails here"),
                ),
                _all_repairs(result, conversion.left) if hanging else (),
                {"left behind": len(conversion.left), "dtype": dtype, "of the model": conversion.dtype},
            )
    return None


def _all_repairs(result: AnatomyResult, left: tuple[str, ...]) -> tuple[Edit, ...]:
    """All of them together: one alone would leave the others behind."""
    names = {n.split(" ")[0] for n in left}
    hanging = [u for u in result.unregistered if any(n.startswith(u.path) for n in names)]
    found = [repair_of(result, u) for u in hanging]
    lines = [e.line for edit in found for e in edit]
    return tuple(e for edit in found for e in edit) if all(found) and len(set(lines)) == len(lines) else ()


def mixed_devices(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    homes = [t.device for t in result.tensors if t.kind == "parameter"]
    if not homes:
        return None
    home = max(set(homes), key=homes.count)
    away = [
        t
        for t in result.tensors
        if t.device != home and not t.kind.startswith(("parameter", "buffer")) and not t.in_forward
    ]
    if not away:
        return None
    first = away[0]
    hanging = next((u for u in result.unregistered if first.name.startswith(u.path)), None)
    return Cause(
        f"{first.name} is on {first.device}, the parameters are on {home}",
        f"Moving a module takes along what is registered. {first.name} is a plain tensor and stayed where it was made.",
        hanging.repair if hanging else "Register it as a buffer.",
        (*site(first.line, "not registered", first.name), *site(line, "fails here")),
        repair_of(result, hanging) if hanging else (),
        {"left behind": len(away)},
    )


def two_groups(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    shared = next((s for s in result.shared if s.kind in ("parameter", "module")), None)
    if shared is None:
        return None
    return Cause(
        "One object under two names",
        f"{listed(shared.names)} {'are' if len(shared.names) > 1 else 'is'} one object, so it lies in both groups: it would be stepped twice.",
        "Collect each parameter once: {id(p): p for p in ...}.values().",
        (
            *site(next(iter(shared.lines), None), "made one here", listed(shared.names)),
            *site(line, "fails here"),
        ),
        (),
        {"names": len(shared.names)},
    )


def no_leaf(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    lost = next((u for u in result.unregistered if u.what == "lost parameter"), None)
    if lost is None:
        return None
    return Cause(
        f"{lost.path} is no parameter any more",
        f"Line {lost.line} converted a Parameter, and a conversion gives a new tensor with a history. The Parameter itself was dropped.",
        lost.repair,
        (*site(lost.line, "converted here", lost.path), *site(line, "fails here")),
        repair_of(result, lost),
        {},
    )


def hooked_view(result: AnatomyResult, match: re.Match[str], line: int | None) -> Cause | None:
    hook = next((h for h in result.hooks if h.kind.startswith("full backward") and h.line), None)
    if hook is None:
        return None
    return Cause(
        f"The hook on {hook.path or 'the model'} made a view of what is overwritten",
        "A full backward hook hands the module views of its inputs and outputs, to see their gradients. The next operation writes into one "
        "in place, and torch refuses that.",
        "inplace=False in the layer that writes, or a hook on the tensor instead of the module.",
        (*site(hook.line, "hooked here", hook.path), *site(line, "fails here")),
    )
