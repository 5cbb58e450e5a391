"""Everything the browser needs to draw one pass over one graph with one choice of open boxes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from components.autograd_graph.graph_view import layout
from components.autograd_graph.graph_view.block_norms import Arriving
from components.autograd_graph.graph_view.boxes import Box, Visible, open_at_first, visible
from components.autograd_graph.graph_view.cards import Card, box_card, changed, node_card
from components.autograd_graph.graph_view.folding import fold
from components.autograd_graph.graph_view.marks import differs
from components.autograd_graph.graph_view.steps import EdgeKey, Passage, item_id, passage
from lab.quantities import bytes_text, short_bytes_text
from lab.records.graph import Edge, GraphResult, Node, Pass
from lab.wire import collector_off, encode

WORDS_LIMIT = 300
"""Names that a box can be found by."""

Graph = tuple[Sequence[Node], Sequence[Edge]]
Tree = Callable[[int], Box]
"""Number of a pass to the folded tree of its graph."""


def default_pass(result: GraphResult) -> int:
    """The last backward pass that ran a node, else the last one; 0 when there is none."""
    passes = [k for k, steps in enumerate(result.backward) if steps]
    return passes[-1] if passes else max(len(result.passes) - 1, 0)


def pass_graph(result: GraphResult, number: int) -> Graph:
    """Nodes and edges that pass ``number`` is about: the graph of the result, or the one above the pass's own root."""
    nodes, edges = result.nodes, result.edges
    if not result.passes:
        return nodes, edges
    chosen = result.passes[number]
    if not chosen.nodes:
        return nodes, edges
    nodes, edges = [*nodes, *chosen.nodes], [*edges, *chosen.edges]
    return (nodes, edges) if chosen.root is None else _above(nodes, edges, chosen.root)


def _above(nodes: Sequence[Node], edges: Sequence[Edge], root: int) -> Graph:
    sources: dict[int, list[int]] = {}
    for e in edges:
        sources.setdefault(e.target, []).append(e.source)
    seen, stack = {root}, [root]
    while stack:
        for s in sources.get(stack.pop(), ()):
            if s not in seen:
                seen.add(s)
                stack.append(s)
    return [n for n in nodes if n.id in seen], [e for e in edges if e.target in seen]


@collector_off()
def scene(
    result: GraphResult,
    number: int,
    tree: Box,
    opened: set[str] | None,
    *,
    wide: bool = False,
    own: frozenset[int] = frozenset(),
) -> dict[str, Any]:
    """What is drawn: cards with positions, edges, frames, steps of pass ``number``, totals and texts.

    ``tree`` is ``fold(*pass_graph(result, number))``; ``opened`` None opens what is open at first. ``wide``: the stage is
    wider than high, so data may flow to the right where that is larger. ``own``: nodes that the graph beside it lacks.
    """
    nodes, edges = pass_graph(result, number)
    by_id = {n.id: n for n in nodes}
    shown = visible(tree, open_at_first(tree) if opened is None else opened)
    drawn_edges, edge_ids = _edges(edges, shown.item_of)
    steps = result.backward[number] if result.passes else ()
    run = passage(steps, edges, shown.item_of, by_id, edge_ids)
    freed_at = _freed(result, number, run)
    arriving, last = Arriving(run.gradients, by_id), number == default_pass(result)
    cards = [_card(item, by_id, run, freed_at, last, arriving) for item in shown.items]
    for item, card in zip(shown.items, cards, strict=True):
        card["own"] = bool(own) and differs(item, own)
    placed = _placed(cards, shown, drawn_edges)
    across = _placed(cards, shown, drawn_edges, across=True) if wide else placed
    if _room(across) > _room(placed):
        placed = across
    found = {
        "pass": number,
        "across": wide and placed is across,
        "open": [box.id for box, _ in shown.frames],
        "nodes": cards,
        "steps": run.steps,
        "totals": _totals(result, number, nodes),
        "caveats": _caveats(result, number, run, placed.exact, tree),
        "passes": [_pass_label(k, p) for k, p in enumerate(result.passes)],
        "error": result.passes[number].error if result.passes else "",
        "focus": item_id(shown.item_of.get(_root(result, number, nodes))),
    }
    return encode(found | _geometry(placed, cards, drawn_edges, shown))


def folder(result: GraphResult) -> Tree:
    """``fold`` of the graph of a pass, each folded once."""
    trees: dict[int, Box] = {}

    def tree(number: int) -> Box:
        key = number if result.passes and result.passes[number].nodes else -1
        if key not in trees:
            trees[key] = fold(*pass_graph(result, number))
        return trees[key]

    return tree


def _card(
    item: int | Box,
    nodes: Mapping[int, Node],
    run: Passage,
    freed_at: Callable[[int], int | None],
    last: bool,
    arriving: Arriving,
) -> Card:
    if isinstance(item, Box):
        members = [nodes[i] for i in item.members()]
        freed = (freed_at(n.id) for n in members if any(s.freed for s in n.saved))
        card = box_card(item, members, max((k for k in freed if k is not None), default=None), arriving.card(item))
    else:
        members = [nodes[item]]
        gradient = run.gradients.get(item, nodes[item].grad if last else None)
        card = node_card(nodes[item], gradient, freed_at(item))
        card["details"] += [["derivative", text] for text in run.formulas.get(item, ())]
    return card | {"id": item_id(item), "find": _find(card, members)}


def _find(card: Card, members: Sequence[Node]) -> str:
    """What search looks at, in small letters."""
    words: dict[str, None] = {card["title"]: None, card["meta"]: None}
    for n in members:
        words |= dict.fromkeys((n.name, n.label, *n.variables, n.module or "", f"line {n.line}"))
        if len(words) > WORDS_LIMIT:
            break
    return "\n".join(words).lower()


def _freed(result: GraphResult, number: int, run: Passage) -> Callable[[int], int | None]:
    """When the chosen pass frees what a node saved: a drawn step, -1 before the pass, None not by this pass."""
    passes = result.passes
    if not passes:
        return lambda node: -1
    before = {s.node for k in range(number) if not passes[k].retain_graph for s in result.backward[k]}
    after = {s.node for k in range(number, len(passes)) for s in result.backward[k]}

    def freed_at(node: int) -> int | None:
        if node in before:
            return -1
        if node in run.ran_at and not passes[number].retain_graph:
            return run.ran_at[node]
        return None if node in after else -1

    return freed_at


def _edges(edges: Sequence[Edge], item_of: dict[int, int | Box]) -> tuple[list[dict[str, Any]], dict[EdgeKey, int]]:
    """Drawn edges, and which of them shows an edge of the graph. Edges to or from a box are drawn once, with their number."""
    drawn: dict[tuple[Any, ...], dict[str, Any]] = {}
    ids: dict[EdgeKey, int] = {}
    for e in edges:
        source, target = item_of[e.source], item_of[e.target]
        if source is target:
            continue
        key: tuple[Any, ...] = (source, target)
        if not isinstance(source, Box) and not isinstance(target, Box):
            key = (source, target, e.slot)
        edge = drawn.setdefault(key, {"id": len(drawn), "s": source, "t": target, "count": 0})
        edge["count"] += 1
        ids[e.source, e.target, e.slot] = edge["id"]
    return list(drawn.values()), ids


_WIDE = 1.75
"""Width over height of a stage that takes the room beside the controls."""


def _room(placed: layout.Layout) -> float:
    """How large the picture gets on a wide stage, up to a factor."""
    return min(_WIDE / max(placed.width, 1), 1 / max(placed.height, 1))


def _placed(cards: list[Card], shown: Visible, edges: list[dict[str, Any]], *, across: bool = False) -> layout.Layout:
    index = {item: i for i, item in enumerate(shown.items)}
    inside: dict[Box | None, list[Box]] = {}
    for box, around in shown.frames:
        inside.setdefault(around, []).append(box)

    def frame(box: Box) -> layout.Frame:
        own = tuple(index[c] for c in (*box.leaves, *box.children) if c in index)
        return layout.Frame(own, tuple(frame(b) for b in inside.get(box, ())))

    sizes = tuple((c["w"], c["h"]) for c in cards)
    pairs = tuple((index[e["s"]], index[e["t"]]) for e in edges)
    return layout.place(sizes, pairs, tuple(frame(b) for b in inside.get(None, ())), across)


def _geometry(placed: layout.Layout, cards: list[Card], edges: list[dict[str, Any]], shown: Visible) -> dict[str, Any]:
    for card, (x, y) in zip(cards, placed.centres, strict=True):
        card["x"], card["y"] = x, y
    frames = [
        {"box": box.id, "title": box.title, "meta": box.label, "rect": [round(v, 1) for v in rect]}
        for (box, _), rect in zip(shown.frames, placed.frames, strict=False)
    ]
    return {
        "size": [round(placed.width), round(placed.height)],
        "edges": [
            e | {"s": item_id(e["s"]), "t": item_id(e["t"]), "points": p}
            for e, p in zip(edges, placed.curves, strict=True)
        ],
        "frames": frames,
    }


def figure_id(result: GraphResult) -> str:
    """Equal for results whose graphs and passes are the same, whatever the values: zoom, step and open boxes survive."""
    digest = hashlib.blake2b(digest_size=8)
    parts = [(result.nodes, result.edges), *((p.nodes, p.edges) for p in result.passes)]
    for nodes, edges in parts:
        digest.update(repr([(n.id, n.name, n.line) for n in nodes]).encode(errors="replace"))
        digest.update(repr([(e.source, e.target, e.slot) for e in edges]).encode())
    return digest.hexdigest()


def _root(result: GraphResult, number: int, nodes: Sequence[Node]) -> int:
    """The node from which the chosen pass starts, else the root of the graph, else any; -1 for an empty graph."""
    known = dict.fromkeys(n.id for n in nodes)
    wanted = (result.passes[number].root if result.passes else None, result.root_node, *known)
    return next((i for i in wanted if i is not None and i in known), -1)


def _totals(result: GraphResult, number: int, nodes: Sequence[Node]) -> list[str]:
    saved = [s for n in nodes for s in n.saved]
    kept, after = result.kept_bytes, result.kept_bytes_after
    if result.passes:
        kept, after = result.passes[number].kept_bytes, result.passes[number].kept_bytes_after
    memory = f"{bytes_text(kept)} kept alive"
    if result.passes:
        memory = f"{bytes_text(kept)} kept alive before backward, {short_bytes_text(after)} after"
    stale = sum(changed(s) for s in saved)
    found = [_count(len(nodes), "node"), _count(len(saved), "saved tensor"), memory]
    return found + ([f"{_count(stale, 'saved tensor')} changed since"] if stale else [])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _caveats(result: GraphResult, number: int, run: Passage, exact_layout: bool, tree: Box) -> list[str]:
    found = []
    if any(isinstance(c, Box) for c in tree.children):
        found.append("Modules and repetitions are folded. Click a box to open it, the minus of a frame to close it.")
    if result.passes:
        ran = len(result.backward[number]) + result.passes[number].steps_cut
        if ran > run.walked:
            found.append(f"The first {run.walked:,} of {ran:,} backward steps are here.")
    if result.passes_cut:
        found.append(
            f"{_count(result.passes_cut, 'further backward pass').replace('passs', 'passes')} ran and cannot be shown."
        )
    if not exact_layout:
        found.append("Too many edges for a careful layout: boxes stand in plain layers.")
    return found


def _pass_label(number: int, one: Pass) -> str:
    where = f", line {one.line}" if one.line else ""
    return f"{number + 1} · {one.call}{where}" + (" (run by the lab)" if one.by == "lab" else "")


def description(result: GraphResult, drawn: dict[str, Any]) -> str:
    """The picture in words, for those who cannot see it."""
    leaves = ", ".join(leaf.name for leaf in result.leaves[:8]) or "none"
    name = f" of {result.root}" if result.root else ""
    return (
        f"Autograd graph{name}: {', '.join(drawn['totals'])}. Leaves: {leaves}. "
        f"{len(drawn['nodes']):,} boxes are drawn, leaves at the top; data flows down, gradients flow up. "
        f"{_count(len(drawn['steps']), 'backward step')}."
    )
