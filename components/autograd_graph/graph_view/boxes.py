"""Boxes that stand for many nodes, and what is drawn while some of them are open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

OPEN_AT_FIRST = 60
"""Whole levels are opened at first as long as no more than this is visible."""
VISIBLE_LIMIT = 400

Kind = Literal["root", "module", "repeat", "iteration", "part", "leaves"]


@dataclass(eq=False)
class Box:
    """An interval of nodes that can be shown as one."""

    kind: Kind
    title: str
    children: list[int | Box]
    label: str = ""
    """Class of a module; else the lines it comes from."""
    lines: tuple[int | None, int | None] = (None, None)
    """First and last line of the program that its functions come from."""
    id: str = ""
    rounds: list[int | Box] = field(default_factory=list)
    """Of a repetition, in the order of the forward pass."""
    leaves: list[int | Box] = field(default_factory=list)
    """Leaves used only inside, beside the children."""

    def members(self) -> Iterator[int]:
        """Every node inside."""
        stack: list[int | Box] = [self]
        while stack:
            item = stack.pop()
            if isinstance(item, Box):
                stack += item.leaves
                stack += item.children
            else:
                yield item

    def boxes(self) -> Iterator[Box]:
        """This box and all boxes inside, outermost first."""
        stack = [self]
        while stack:
            box = stack.pop()
            yield box
            stack += [c for c in (*box.leaves, *box.children) if isinstance(c, Box)]


@dataclass(frozen=True)
class Visible:
    """What is drawn for one choice of open boxes."""

    items: list[int | Box]
    item_of: dict[int, int | Box]
    """Node to the item that stands for it."""
    frames: list[tuple[Box, Box | None]]
    """Open boxes with the open box around them, outermost first."""


def open_at_first(root: Box) -> set[str]:
    """Ids of the boxes that are open until the visitor decides: whole levels, while the picture stays small."""
    opened: set[str] = set()
    level = [root]
    count = len(root.children) + len(root.leaves)
    while level:
        inner = [c for box in level for c in box.children if isinstance(c, Box) and c.kind == "module"]
        grown = count + sum(len(b.children) + len(b.leaves) - 1 for b in inner)
        if not inner or grown > OPEN_AT_FIRST:
            break
        opened |= {b.id for b in inner}
        level, count = inner, grown
    return opened


def visible(root: Box, opened: Iterable[str]) -> Visible:
    """What is drawn when the boxes ``opened`` are open. Unknown ids are ignored; stops opening at VISIBLE_LIMIT items."""
    wanted, seen = set(opened), Visible([], {}, [])
    budget = VISIBLE_LIMIT - len(root.children) - len(root.leaves)
    stack: list[tuple[int | Box, Box | None]] = [(c, None) for c in reversed([*root.leaves, *root.children])]
    while stack:
        item, around = stack.pop()
        if isinstance(item, int):
            seen.items.append(item)
            seen.item_of[item] = item
            continue
        grows = len(item.children) + len(item.leaves) - 1
        if item.id in wanted and grows <= budget:
            budget -= grows
            seen.frames.append((item, around))
            stack += [(c, item) for c in reversed([*item.leaves, *item.children])]
        else:
            seen.items.append(item)
            seen.item_of.update((n, item) for n in item.members())
    return seen
