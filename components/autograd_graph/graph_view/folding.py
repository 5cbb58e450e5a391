"""Which nodes share a box: modules, repetitions, and parts of what is still too long.

NOTE on folding
1. Functions are put into one topological order that stays inside a module while it can. Every box is an interval of that
   order, so the folded graph has no cycle, whatever is open.
2. A run of nodes with the same module path prefix is a box, nested by path; a module called twice is two boxes.
3. Blocks that repeat are one box, "12 × Block"; where a box has more than CHILDREN_LIMIT children, so are operations: the
   shortest sequence of (operation, line) that repeats back to back becomes one box with its iterations inside.
4. What is still longer is cut into equal parts, level by level, so that no box ever shows more than CHILDREN_LIMIT children.
5. A leaf belongs to the innermost box that holds all its consumers; many leaves of one box share a box of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from components.autograd_graph.graph_view.boxes import Box, Kind
from components.autograd_graph.graph_view.repetition import REPEATS, Periods
from lab.records.graph import Edge, Node
from lab.wire import collector_off

FOLD_ABOVE = 150
"""Graphs with more nodes than this are folded."""
CHILDREN_LIMIT = 30
LEAVES_APART = 6
"""A box with more leaves of its own than this keeps them in one box."""
MODULE_DEPTH = 16
"""Modules nested deeper than this share a box."""


@collector_off()
def fold(nodes: Sequence[Node], edges: Sequence[Edge]) -> Box:
    """The tree of boxes over ``nodes`` and ``edges``. The root itself is never drawn."""
    if len(nodes) <= FOLD_ABOVE:
        return Box("root", "", [n.id for n in nodes], id="root")
    graph = _Graph(nodes, edges)
    order = graph.order()
    root = Box("root", "", graph.shorten(graph.modules(order, 0)), id="root")
    graph.attach_leaves(root)
    _unwrap(root)
    for box in list(root.boxes())[1:]:
        members = list(box.members())
        box.id = f"{box.kind}-{members[0]}-{members[-1]}-{len(members)}"
    return root


def module_of(node: Node) -> tuple[tuple[str, ...], str]:
    """Path and class of ``0.linear1 (Linear)``: ``(("0", "linear1"), "Linear")``."""
    text = node.module or ""
    path, _, rest = text.partition(" (") if not text.startswith("(") else ("", "", text[1:])
    return tuple(p for p in path.split(".") if p), rest.removesuffix(")")


class _Graph:
    """The graph in the form that folding asks questions of."""

    def __init__(self, nodes: Sequence[Node], edges: Sequence[Edge]) -> None:
        self.nodes = {n.id: n for n in nodes}
        self.path, self.cls = {}, {}
        for n in nodes:
            path, cls = module_of(n)
            self.path[n.id] = path[:MODULE_DEPTH]
            self.cls[path] = cls
        self.sources: dict[int, list[int]] = {i: [] for i in self.nodes}
        self.targets: dict[int, list[int]] = {i: [] for i in self.nodes}
        for e in edges:
            self.sources[e.target].append(e.source)
            self.targets[e.source].append(e.target)
        self.leaves = [n.id for n in nodes if n.kind == "leaf" and self.targets[n.id]]
        self.signs: dict[int | Box, int] = {}
        self.marks: dict[Any, int] = {}

    def order(self) -> list[int]:
        """Functions, sources before targets, found from the end: what is needed late comes late, next to its use."""
        leaf = set(self.leaves)
        waiting = {i: len(self.targets[i]) for i in self.nodes if i not in leaf}
        ready: dict[tuple[str, ...], list[int]] = {}  # by every prefix of the module path

        def add(i: int) -> None:
            path = self.path[i]
            for depth in range(len(path) + 1):
                ready.setdefault(path[:depth], []).append(i)

        for i, users in waiting.items():
            if not users:
                add(i)
        done: dict[int, None] = {}
        at: tuple[str, ...] = ()
        while len(done) < len(waiting):
            i = self._next(ready, at, done)
            done[i] = None
            at = self.path[i]
            for s in self.sources[i]:
                if s not in leaf:
                    waiting[s] -= 1
                    if not waiting[s]:
                        add(s)
        return list(done)[::-1]

    def _next(self, ready: dict[tuple[str, ...], list[int]], at: tuple[str, ...], done: dict[int, None]) -> int:
        for depth in range(len(at), -1, -1):
            stack = ready.get(at[:depth], [])
            while stack and stack[-1] in done:
                stack.pop()
            if stack:
                return stack.pop()
        raise ValueError("the graph has a cycle: no node is left whose users are all placed")

    def modules(self, ids: list[int], depth: int) -> list[int | Box]:
        """Runs of nodes with the same module path down to ``depth`` become boxes."""
        items: list[int | Box] = []
        start = 0
        while start < len(ids):
            path = self.path[ids[start]][: depth + 1]
            stop = start + 1
            while stop < len(ids) and self.path[ids[stop]][: depth + 1] == path:
                stop += 1
            run = ids[start:stop]
            if len(path) <= depth or len(run) == 1:
                items += run
            else:
                inside = self.modules(run, depth + 1)
                items.append(self._box("module", ".".join(path), self.shorten(inside), inside, self.cls.get(path, "")))
            start = stop
        return items

    def shorten(self, items: list[int | Box]) -> list[int | Box]:
        """At most CHILDREN_LIMIT items: repetitions folded, then equal parts."""
        long = len(items) > CHILDREN_LIMIT
        if long or any(isinstance(item, Box) for item in items):
            items = self._repeats(items, everything=long)
        return self._parts(items, "part", lambda first, last: self._names(items[first:last]))

    def _repeats(self, items: list[int | Box], everything: bool) -> list[int | Box]:
        """Repetitions folded: of ``everything``, or of blocks only."""
        signs = [self._signature(i) for i in items]
        search, folded, i = Periods(signs), [], 0
        while i < len(items):
            period, times = search.best(i)
            block = everything or any(isinstance(item, Box) for item in items[i : i + period])
            if times < REPEATS or period * times < 2 * REPEATS or not block:
                folded.append(items[i])
                i += 1
            else:
                folded.append(self._repeat(items[i : i + period * times], period))
                i += period * times
        return folded

    def _repeat(self, items: list[int | Box], period: int) -> Box:
        rounds: list[int | Box] = list(items)
        if period > 1:
            groups = [items[k : k + period] for k in range(0, len(items), period)]
            rounds = [self._box("iteration", f"round {k:,}", self.shorten(g), g) for k, g in enumerate(groups, 1)]
        names = self._names(items[:period])
        title = f"{len(rounds):,} × {f'({names})' if ', ' in names else names}"
        inside = self._parts(rounds, "iteration", lambda first, last: f"rounds {first + 1:,}–{last:,}")
        box = self._box("repeat", title, inside, items)
        box.rounds = rounds
        return box

    def _parts(self, items: list[int | Box], kind: Kind, title: Callable[[int, int], str]) -> list[int | Box]:
        """Equal parts in as many levels as it takes; ``title`` names a part by its first index and the one after its last."""

        def split(first: int, last: int) -> list[int | Box]:
            count = last - first
            if count <= CHILDREN_LIMIT:
                return items[first:last]
            size = -(-count // min(CHILDREN_LIMIT, -int(-(count**0.5) // 1)))
            parts: list[int | Box] = []
            for a in range(first, last, size):
                b = min(a + size, last)
                parts.append(self._box(kind, title(a, b), split(a, b), items[a:b]) if b - a > 1 else items[a])
            return parts

        return split(0, len(items))

    def attach_leaves(self, root: Box) -> None:
        """Put each leaf into the innermost box that holds all its consumers; while they are few, modules only."""
        few = len(self.leaves) <= 2 * LEAVES_APART
        parent: dict[int | Box, Box] = {c: box for box in root.boxes() for c in box.children}
        own: dict[Box, list[int | Box]] = {}
        for leaf in self.leaves:
            first, *others = self.targets[leaf]
            chain = _chain(parent, first)
            for t in others:
                if len(chain) == 1:
                    break
                above = set(_chain(parent, t))
                chain = [box for box in chain if box in above]
            home = next(box for box in chain if not few or box.kind in ("module", "root"))
            own.setdefault(home, []).append(leaf)
        for box, leaves in own.items():
            box.leaves = leaves
            if len(leaves) > LEAVES_APART and not few:
                inside = self._parts(leaves, "leaves", lambda a, b: f"leaves {a + 1:,}–{b:,}")
                box.leaves = [Box("leaves", f"{len(leaves):,} leaves", inside)]

    def _signature(self, item: int | Box) -> int:
        """Equal numbers for things that look the same: operation and line; class and contents."""
        if item not in self.signs:
            if isinstance(item, Box):
                mark: Any = (item.kind, item.label, *map(self._signature, item.children))
            else:
                mark = (self.nodes[item].name, self.nodes[item].line)
            self.signs[item] = self.marks.setdefault(mark, len(self.marks))
        return self.signs[item]

    def _names(self, items: list[int | Box]) -> str:
        """What the items are called, each name once, at most three."""
        names: dict[str, None] = {}
        for i in items:
            if not isinstance(i, Box):
                names[self.nodes[i].label] = None
            else:
                names[i.label if i.kind == "module" and i.label else i.title] = None
            if len(names) > 3:
                return ", ".join([*names][:3]) + ", …"
        return ", ".join(names)

    def _box(self, kind: Kind, title: str, children: list[int | Box], items: list[int | Box], label: str = "") -> Box:
        """A box over ``items``, labelled with their lines when there is no better ``label``."""
        spans = [i.lines if isinstance(i, Box) else (self.nodes[i].line,) * 2 for i in items]
        known = [line for span in spans for line in span if line]
        lines = (min(known), max(known)) if known else (None, None)
        return Box(kind, title, children, label or _lines_text(*lines), lines=lines)


def _lines_text(low: int | None, high: int | None) -> str:
    if low is None:
        return ""
    return f"line {low}" if low == high else f"lines {low}–{high}"


def _chain(parent: dict[int | Box, Box], item: int | Box) -> list[Box]:
    """The boxes around ``item``, innermost first."""
    chain = []
    while item in parent:
        item = parent[item]
        chain.append(item)
    return chain


def _unwrap(root: Box) -> None:
    """A box that holds nothing but one box is left out."""
    for box in root.boxes():
        for k, child in enumerate(box.children):
            while isinstance(child, Box) and len(child.children) == 1 and not child.leaves:
                child = child.children[0]
            box.children[k] = child
