"""The backward pass on what is drawn: each step of the engine as texts for the item that shows its node.

Steps of nodes inside a closed box that follow one another are one step of the box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.autograd_graph.graph_view.boxes import Box
from components.autograd_graph.graph_view.cards import spoken
from components.autograd_graph.graph_view.notation import exact, short_gradient
from lab.records.graph import Edge, Node, Plain, Step

STEPS_LIMIT = 1_500
"""Steps that go to the browser."""
_NOTED_LETTERS = 60
_HANDED_ON = (" = ∂", " = ∂ for each element")
EXACT_CHARACTERS = 200
NAMED_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

EdgeKey = tuple[int, int, int]
"""Source, target, slot."""


@dataclass
class Passage:
    """One backward pass, ready to draw."""

    steps: list[dict[str, Any]]
    ran_at: dict[int, int]
    """Node to the drawn step in which it ran."""
    gradients: dict[int, Plain]
    """Node to the gradient that the pass brought; for a leaf its ``.grad`` after."""
    walked: int
    """Steps of the engine that ``steps`` stand for."""
    formulas: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Node to its derivatives with their numbers."""


@dataclass
class _Handed:
    """A gradient on its way from a drawn item to another one."""

    node: int
    item: int | Box | None
    edge: int | None
    """The drawn edge."""
    part: Plain
    forming: _Sum | None = None
    """The sum it becomes part of, for a parent that is drawn as itself."""

    @property
    def text(self) -> str:
        return "none" if self.part is None else short_gradient(self.part)


@dataclass
class _Sum:
    """The gradient of one output of a node while it forms."""

    expected: int = 0
    parts: int = 0
    first: list[Plain] = field(default_factory=list)
    total: Plain = None

    def add(self, part: Plain) -> None:
        self.total = added(self.total, part) if self.parts else part
        self.parts += 1
        if len(self.first) < 3:
            self.first.append(part)

    @property
    def whole(self) -> bool:
        return self.parts == self.expected > 1

    @property
    def text(self) -> str:
        """``so far 1.0 1.0``, then ``(1.0 1.0) + (0.12 −0.1) = (1.12 0.9)``; empty for a gradient that is no sum."""
        if self.expected < 2:
            return ""
        total = short_gradient(self.total)
        count = f"{self.parts:,} of {self.expected:,}"
        if not total:
            return f"part {count}"
        if not self.whole:
            return f"so far {total}" + (f" ({count})" if self.expected > 2 else "")
        if self.parts > len(self.first):
            return f"{self.parts:,} parts = {total}"
        return " + ".join(map(_bracketed, self.first)) + f" = {_bracketed(self.total)}"


def passage(
    steps: Sequence[Step],
    edges: Sequence[Edge],
    item_of: dict[int, int | Box],
    nodes: Mapping[int, Node],
    edge_ids: dict[EdgeKey, int],
) -> Passage:
    """Steps of one pass over ``edges``, for the items of ``item_of``; ``edge_ids`` says which drawn edge shows one."""
    handed = _handed(steps, edges, item_of, edge_ids)
    found = Passage([], {}, {}, 0)
    for group in _groups(steps, item_of):
        drawn, group_handed = len(found.steps), []
        for at in group:
            step = steps[at]
            found.ran_at[step.node] = drawn
            found.formulas[step.node] = tuple(dict.fromkeys(text for text in step.formulas if text))
            found.gradients[step.node] = step.incoming if step.after is None else step.after
            for h in handed[at]:
                if h.forming and h.part is not None:
                    h.forming.add(h.part)
            group_handed += handed[at]
        if drawn < STEPS_LIMIT:
            found.steps.append(
                _drawn(item_of[steps[group[0]].node], [steps[at] for at in group], group, group_handed, nodes)
            )
            found.walked += len(group)
    return found


def _handed(
    steps: Sequence[Step],
    edges: Sequence[Edge],
    item_of: dict[int, int | Box],
    edge_ids: dict[EdgeKey, int],
) -> list[list[_Handed]]:
    """What each step hands to other items. Gradients come in the order of the inputs, so they pair up with edges by slot."""
    inputs: dict[int, list[Edge]] = {}
    crossing = (e for e in edges if item_of.get(e.source) is not item_of.get(e.target))
    for e in sorted(crossing, key=lambda e: e.slot):
        inputs.setdefault(e.target, []).append(e)
    sums: dict[tuple[int, int], _Sum] = {}
    found: list[list[_Handed]] = []
    for step in steps:
        own, row = item_of.get(step.node), []
        found.append(row)
        if all(item_of.get(parent) is own for parent in step.parents):
            continue
        left = list(inputs.get(step.node, ()))
        for parent, part in zip(step.parents, step.given, strict=True):
            edge = next((e for e in left if e.source == parent), None)
            if edge:
                left.remove(edge)
            item = item_of.get(parent)
            if item is own:
                continue
            h = _Handed(parent, item, edge_ids.get((parent, step.node, edge.slot)) if edge else None, part)
            if edge and not isinstance(item, Box) and part is not None:
                h.forming = sums.setdefault((parent, edge.index), _Sum())
                h.forming.expected += 1
            row.append(h)
    return found


def _groups(steps: Sequence[Step], item_of: dict[int, int | Box]) -> list[list[int]]:
    """Indices of steps that are drawn as one: each node alone, what follows one another inside a box together."""
    groups: list[list[int]] = []
    last: int | Box | None = None
    for at, step in enumerate(steps):
        item = item_of.get(step.node)
        if item is None:
            continue
        if isinstance(item, Box) and item is last:
            groups[-1].append(at)
        else:
            groups.append([at])
        last = item
    return groups


def _drawn(
    item: int | Box,
    steps: Sequence[Step],
    group: list[int],
    handed: list[_Handed],
    nodes: Mapping[int, Node],
) -> dict[str, Any]:
    drawn = {"item": item_id(item), "at": [group[0], group[-1]], "given": _by_edge(handed)}
    if isinstance(item, Box):
        return drawn | {"grad": "", "exact": "", "note": _box_note(item, steps, handed, nodes)}
    (step,) = steps
    return drawn | {
        "grad": short_gradient(step.incoming if step.after is None else step.after),
        "exact": exact(step.incoming, EXACT_CHARACTERS),
        "note": _note(step, handed, nodes, starts=group[0] == 0),
    }


def _by_edge(handed: list[_Handed]) -> list[dict[str, Any]]:
    """One entry a drawn edge; several gradients on one edge (from or to a box) are counted."""
    edges: dict[int, list[_Handed]] = {}
    for h in handed:
        if h.edge is not None:
            edges.setdefault(h.edge, []).append(h)
    return [
        {
            "edge": edge,
            "to": item_id(some[0].item),
            "text": some[0].text if len(some) == 1 else f"{len(some):,} gradients",
            "exact": exact(some[0].part, EXACT_CHARACTERS) if len(some) == 1 else "",
            "sum": some[0].forming.text if some[0].forming else "",
            "so_far": short_gradient(some[0].forming.total) if some[0].forming else "",
        }
        for edge, some in edges.items()
    ]


def item_id(item: int | Box | None) -> str:
    """Id of an item in the browser; empty for None."""
    return "" if item is None else item.id if isinstance(item, Box) else f"n{item}"


def _note(step: Step, handed: list[_Handed], nodes: Mapping[int, Node], starts: bool) -> str:
    name, incoming = spoken(nodes[step.node]), short_gradient(step.incoming)
    if step.after is not None:
        after = short_gradient(step.after)
        if step.before is None:
            return f"{name}.grad was None and becomes {after}."
        before = short_gradient(step.before)
        return f"{name}.grad goes from {before} to {after}: the new {incoming} is added to what was there."
    text = f"{name} receives {incoming or 'nothing'}" + (", the start of the pass," if starts else "")
    if not handed:
        return f"{text} and hands nothing on."
    parts = [f"{h.text} to {'another ' if _named(h, nodes) == name else ''}{_named(h, nodes)}" for h in handed]
    whole = next((h for h in handed if h.forming and h.forming.whole), None)
    done = f" {_named(whole, nodes)} now has all its parts: {whole.forming.text}." if whole and whole.forming else ""
    return f"{text} and hands {_listed(parts, 'gradients to')}.{done}{_derivatives(step)}"


def _derivatives(step: Step) -> str:
    """`` Here ∂x = w · ∂ and ∂w = x · ∂.``; what is only handed on is not repeated, nor what does not fit a line."""
    rules = [" = ".join(text.split(" = ")[:2]) for text in step.formulas if text]
    told = [rule for rule in dict.fromkeys(rules) if len(rule) <= _NOTED_LETTERS and not rule.endswith(_HANDED_ON)]
    return f" Here {_listed(told[:2], '')}." if told else ""


def _box_note(box: Box, steps: Sequence[Step], handed: list[_Handed], nodes: Mapping[int, Node]) -> str:
    arrived = short_gradient(steps[0].incoming) if steps[0].after is None else ""
    received = f" receives {arrived};" if arrived else ":"
    ran = f"{box.title}{received} {len(steps):,} {'node' if len(steps) == 1 else 'nodes'} inside ran"
    to = dict.fromkeys(h.item.title if isinstance(h.item, Box) else _named(h, nodes) for h in handed)
    return f"{ran} and handed gradients to {_listed([*to], '')}." if to else f"{ran}."


def _named(handed: _Handed, nodes: Mapping[int, Node]) -> str:
    return spoken(nodes[handed.node]) if handed.node in nodes else "a node that is not drawn"


def _listed(parts: list[str], rest: str) -> str:
    """``a, b and c``; after three ``rest`` and how many more."""
    if len(parts) > 4:
        parts = [*parts[:3], f"{rest} {len(parts) - 3:,} more".strip()]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _bracketed(gradient: Plain) -> str:
    text = short_gradient(gradient)
    return f"({text})" if isinstance(gradient, list) else text


def added(a: Plain, b: Plain) -> Plain:
    """Sum of two gradients, elementwise; None where one of them is only a summary."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        rows = [added(x, y) for x, y in zip(a, b, strict=True)]
        return None if None in rows else rows
    if isinstance(a, (list, dict)) or isinstance(b, (list, dict)) or a is None or b is None:
        return None
    total = _number(a) + _number(b)
    if isinstance(total, complex):
        return str(total)
    return total if math.isfinite(total) else "NaN" if math.isnan(total) else "Infinity" if total > 0 else "-Infinity"


def _number(value: Plain) -> complex | float:
    if not isinstance(value, str):
        return value
    return NAMED_NUMBERS[value] if value in NAMED_NUMBERS else complex(value)
