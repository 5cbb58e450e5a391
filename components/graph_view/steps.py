"""The backward pass on what is drawn: each step of the engine as texts for the item that shows its node.

Steps of nodes inside a closed box that follow one another are one step of the box.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from components.graph_view.folding import Box
from components.graph_view.notation import exact, short_gradient

STEPS_LIMIT = 1_500
"""Steps that go to the browser."""
NAMED_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

EdgeKey = tuple[int, int, int]
"""Source, target, slot."""


@dataclass
class _Sum:
    """The gradient of one output of a node while it forms."""

    expected: int = 0
    parts: list[Any] = field(default_factory=list)
    total: Any = None

    def add(self, part: Any) -> None:
        self.total = part if not self.parts else added(self.total, part)
        self.parts.append(part)

    @property
    def text(self) -> str:
        """``so far 1.0 1.0``, then ``1.0 1.0 + 0.12 −0.1 = 1.12 0.9``; empty for a gradient that is no sum."""
        if self.expected < 2:
            return ""
        total, count = short_gradient(self.total), len(self.parts)
        if total == "":
            return f"part {count} of {self.expected}"
        if count < self.expected:
            return f"so far {total}" + (f" ({count} of {self.expected})" if self.expected > 2 else "")
        if count <= 3:
            return " + ".join(short_gradient(p) for p in self.parts) + f" = {total}"
        return f"{count} parts = {total}"


@dataclass
class Passage:
    """One backward pass, ready to draw."""

    steps: list[dict[str, Any]]
    ran_at: dict[int, int]
    """Node to the drawn step in which it ran."""
    gradients: dict[int, Any]
    """Node to the gradient that the pass brought; for a leaf its ``.grad`` after."""
    total: int
    """Steps before the limit."""


def passage(
    steps: list[dict[str, Any]],
    edges: list[dict[str, Any]],
    item_of: dict[int, int | Box],
    names: dict[int, str],
    edge_ids: dict[EdgeKey, int],
) -> Passage:
    """Steps (wire form) of one pass over ``edges``, for the items of ``item_of``; ``edge_ids`` says which drawn edge shows one."""
    given = _given(steps, edges)
    sums: dict[tuple[int, int], _Sum] = {}
    for _, edge, part in (g for gs in given for g in gs):
        if edge and part is not None:
            sums.setdefault((edge["source"], edge["index"]), _Sum()).expected += 1
    groups = _groups(steps, item_of)
    found = Passage([], {}, {}, len(groups))
    for group in groups:
        item = item_of[steps[group[0]]["node"]]
        drawn = len(found.steps)
        for at in group:
            step = steps[at]
            found.ran_at[step["node"]] = drawn
            found.gradients[step["node"]] = step["after"] if step["after"] is not None else step["incoming"]
        if drawn < STEPS_LIMIT:
            handed = [_hand(sums, item_of, edge_ids, *g) for at in group for g in given[at]]
            found.steps.append(_drawn(item, [steps[at] for at in group], group, handed, names))
    return found


def _given(
    steps: list[dict[str, Any]], edges: list[dict[str, Any]]
) -> list[list[tuple[int, dict[str, Any] | None, Any]]]:
    """For each step (parent, edge to it, gradient): parents come in the order of the inputs, so edges pair up by slot."""
    inputs: dict[int, list[dict[str, Any]]] = {}
    for e in sorted(edges, key=lambda e: e["slot"]):
        inputs.setdefault(e["target"], []).append(e)
    paired = []
    for step in steps:
        left = list(inputs.get(step["node"], ()))
        row = []
        for parent, part in zip(step["parents"], step["given"], strict=True):
            edge = next((e for e in left if e["source"] == parent), None)
            if edge:
                left.remove(edge)
            row.append((parent, edge, part))
        paired.append(row)
    return paired


def _groups(steps: list[dict[str, Any]], item_of: dict[int, int | Box]) -> list[list[int]]:
    groups: list[list[int]] = []
    for at, step in enumerate(steps):
        item = item_of.get(step["node"])
        if item is None:
            continue
        if groups and isinstance(item, Box) and item_of[steps[groups[-1][-1]]["node"]] is item:
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups


def _hand(
    sums: dict[tuple[int, int], _Sum],
    item_of: dict[int, int | Box],
    edge_ids: dict[EdgeKey, int],
    parent: int,
    edge: dict[str, Any] | None,
    part: Any,
) -> dict[str, Any]:
    forming = sums.get((parent, edge["index"])) if edge else None
    if forming and part is not None:
        forming.add(part)
    return {
        "edge": edge_ids.get((edge["source"], edge["target"], edge["slot"])) if edge else None,
        "node": parent,
        "item": item_of.get(parent),
        "part": part,
        "text": short_gradient(part) if part is not None else "none",
        "sum": forming.text if forming else "",
        "so_far": short_gradient(forming.total) if forming else "",
        "whole": bool(forming and len(forming.parts) == forming.expected > 1),
    }


def _drawn(
    item: int | Box, steps: list[dict[str, Any]], group: list[int], handed: list[dict[str, Any]], names: dict[int, str]
) -> dict[str, Any]:
    outside = [h for h in handed if h["item"] is not item]
    first = steps[0]
    leaf = first["after"] is not None
    return {
        "item": item_id(item),
        "at": [group[0], group[-1]],
        "grad": "" if isinstance(item, Box) else short_gradient(first["after"] if leaf else first["incoming"]),
        "given": _by_edge(outside),
        "note": _box_note(item, steps, outside, names)
        if isinstance(item, Box)
        else _note(first, outside, names, group[0] == 0),
        "exact": "" if isinstance(item, Box) else exact(first["incoming"]),
    }


def _by_edge(handed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry a drawn edge; several gradients on one edge (from or to a box) are counted."""
    edges: dict[int, list[dict[str, Any]]] = {}
    for h in handed:
        if h["edge"] is not None:
            edges.setdefault(h["edge"], []).append(h)
    return [
        {
            "edge": edge,
            "to": item_id(some[-1]["item"]),
            "text": some[0]["text"] if len(some) == 1 else f"{len(some):,} gradients",
            "exact": exact(some[0]["part"]) if len(some) == 1 else "",
            "sum": some[-1]["sum"],
            "so_far": some[-1]["so_far"],
        }
        for edge, some in edges.items()
    ]


def item_id(item: int | Box | None) -> str:
    """Id of an item in the browser."""
    return item.id if isinstance(item, Box) else f"n{item}"


def _note(step: dict[str, Any], handed: list[dict[str, Any]], names: dict[int, str], starts: bool) -> str:
    name = names[step["node"]]
    if step["after"] is not None:
        after = short_gradient(step["after"])
        if step["before"] is None:
            return f"{name}.grad was None and becomes {after}."
        incoming = short_gradient(step["incoming"])
        return f"{name}.grad goes from {short_gradient(step['before'])} to {after}: the new {incoming} is added to what was there."
    text = f"{name} receives {short_gradient(step['incoming']) or 'nothing'}" + (
        ", the start of the pass," if starts else ""
    )
    if not handed:
        return f"{text} and hands nothing on."
    parts = [f"{h['text']} to {names.get(h['node'], 'a node that is not drawn')}" for h in handed[:3]]
    rest = [f"gradients to {len(handed) - 3:,} more"] if len(handed) > 3 else []
    text = f"{text} and hands {_listed([*parts, *rest])}."
    for h in handed:
        if h["whole"]:
            text += f" {names.get(h['node'], 'The parent')} now has all its parts: {h['sum']}."
            break
    return text


def _box_note(box: Box, steps: list[dict[str, Any]], handed: list[dict[str, Any]], names: dict[int, str]) -> str:
    nodes = "1 node" if len(steps) == 1 else f"{len(steps):,} nodes"
    to = list(
        dict.fromkeys(h["item"].title if isinstance(h["item"], Box) else names.get(h["node"], "") for h in handed)
    )
    text = f"{box.title}: {nodes} inside ran"
    if not to:
        return f"{text}."
    return f"{text} and handed gradients to {_listed([*to[:3], *([f'{len(to) - 3:,} more'] if len(to) > 3 else [])])}."


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def added(a: Any, b: Any) -> Any:
    """Sum of two gradients in wire form, elementwise; None where one of them is only a summary."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        rows = [added(x, y) for x, y in zip(a, b, strict=True)]
        return None if None in rows else rows
    if isinstance(a, (list, dict)) or isinstance(b, (list, dict)) or a is None or b is None:
        return None
    total = _number(a) + _number(b)
    if isinstance(total, complex):
        return str(total)
    return total if math.isfinite(total) else "NaN" if math.isnan(total) else "Infinity" if total > 0 else "-Infinity"


def _number(value: Any) -> complex | float:
    if not isinstance(value, str):
        return value
    return NAMED_NUMBERS[value] if value in NAMED_NUMBERS else complex(value)
