"""What a node or a box says, and how large it has to be to say it. One dict per card, ready for the browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from components.autograd_graph.graph_view.boxes import Box
from components.autograd_graph.graph_view.notation import (
    clip,
    exact,
    shape_text,
    short,
    short_gradient,
    text_width,
)
from lab.quantities import bytes_text, short_bytes_text
from lab.records.graph import Node, Plain, Saved

TITLE_PX, META_PX, VALUE_PX, TAG_PX = 14, 11.5, 12, 11
PAD, GAP = 11, 14
BAR_WIDTH = 14
NARROWEST, WIDEST = 104, 320
TITLE_ROW, VALUE_ROW, BARS_ROW, TAG_ROW = 28, 20, 40, 20
TAGS_SHOWN = 4
KIND_WORDS = {
    "leaf": "leaf: its gradient is added to .grad",
    "function": "function",
    "view": "view: shares the memory of its input",
    "in-place": "in-place: wrote into its input",
    "custom": "custom autograd.Function",
    "checkpoint": "checkpoint: runs its forward again in backward",
    "output": "output: backward starts here",
}

Card = dict[str, Any]


def node_card(node: Node, gradient: Plain, freed_at: int | None) -> Card:
    """The card of one node. ``gradient`` is what the chosen backward pass brought to it.

    ``freed_at`` is the step of the pass that lets go of what the node saved: -1 when it was gone before, None when never.
    """
    mark = node.kind if node.kind in ("custom", "checkpoint") else ""
    line = f"line {node.line}" if node.line else ""
    card = {
        "kind": node.kind,
        "title": node_title(node),
        "meta": " · ".join(t for t in (mark, shape_text(node.shape), line) if t),
        "value": short(node.value),
        "grad": short_gradient(gradient),
        "tags": _tags(node, freed_at),
        "line": node.line,
        "changed": sorted({s.changed_line for s in node.saved if s.changed_line}),
        "details": _node_details(node, gradient),
        "name": spoken(node),
    }
    return _sized(card)


def node_title(node: Node) -> str:
    """``w`` for a leaf, ``h = sigmoid`` for a result with a name."""
    names = ", ".join(v for v in node.variables if v != node.label)
    return f"{names} = {node.label}" if names and node.kind != "leaf" else node.label


def spoken(node: Node) -> str:
    """The node in a sentence: ``w``, ``sigmoid (h)``."""
    names = ", ".join(v for v in node.variables if v != node.label)
    return f"{node.label} ({names})" if names and node.kind != "leaf" else node.label


def box_card(box: Box, members: Sequence[Node], freed_at: int | None, arriving: Card) -> Card:
    """The card of a closed box over the nodes ``members``: how many, which operations, how many bytes they keep.

    ``arriving``: the gradients that a pass brings to it, as ``block_norms.Arriving.card`` tells them.
    """
    lines = sorted({n.line for n in members if n.line})
    saved = [s for n in members for s in n.saved]
    count = f"{len(members):,} nodes"
    kept = [
        {
            "text": f"{len(saved):,} saved · {short_bytes_text(storage_bytes(saved))}",
            "state": "kept",
            "freed_at": freed_at,
        }
    ]
    card = {
        "kind": "box",
        "box": box.id,
        "title": box.title,
        "meta": box.label,
        "value": count,
        "grad": arriving.get("grad", ""),
        "bars": arriving.get("bars", []),
        "tags": kept if saved else [],
        "line": lines[0] if len(lines) == 1 else None,
        "lines": lines[:200],
        "changed": [],
        "details": [
            ["contains", count],
            ["class" if box.kind == "module" else "from", box.label],
            ["operations", _operations(members)],
            *arriving.get("details", []),
            ["saved tensors", f"{len(saved):,}, {bytes_text(storage_bytes(saved))} kept alive"],
        ],
        "name": box.title,
    }
    return _sized(card)


def storage_bytes(saved: Iterable[Saved]) -> int:
    """Bytes of the distinct storages that these saved tensors keep alive."""
    return sum({s.storage: s.storage_bytes or 0 for s in saved if s.storage is not None}.values())


def _operations(members: Sequence[Node]) -> str:
    counts = Counter(n.label if n.kind != "leaf" else "leaf" for n in members).most_common()
    return ", ".join(f"{name} × {n:,}" for name, n in counts[:8]) + (", …" if len(counts) > 8 else "")


def _tags(node: Node, freed_at: int | None) -> list[dict[str, Any]]:
    saved = node.saved
    tags = []
    for s in saved[:TAGS_SHOWN] if len(saved) > TAGS_SHOWN + 1 else saved:
        state, text = _tag(s)
        freed = s.freed and state != "placeholder"
        tags.append({"text": text, "state": state, "freed_at": freed_at if freed else None})
    if len(tags) < len(saved):
        rest = saved[TAGS_SHOWN:]
        text = f"{len(rest):,} more · {short_bytes_text(storage_bytes(rest))}"
        tags.append({"text": text, "state": "kept", "freed_at": freed_at if rest[0].freed else None})
    return tags


def changed(saved: Saved) -> bool:
    """Something wrote into the tensor after it was saved: backward will refuse it."""
    return None not in (saved.saved_version, saved.current_version) and saved.saved_version != saved.current_version


def _tag(saved: Saved) -> tuple[str, str]:
    if saved.recomputed or saved.shape is None:
        return "placeholder", f"{saved.slot}: recomputed in backward"
    if changed(saved):
        where = f" (line {saved.changed_line})" if saved.changed_line else ""
        return "changed", f"{saved.slot}: saved v{saved.saved_version}, now v{saved.current_version}{where}"
    version = f" · v{saved.saved_version}" if saved.saved_version is not None else ""
    return "kept", f"{saved.slot} = {_saved_name(saved)}{version}"


def _saved_name(saved: Saved) -> str:
    if saved.leaf:
        return f"leaf {saved.leaf}"
    if saved.variable:
        return saved.variable
    return f"view of {saved.view_of}" if saved.view_of else shape_text(saved.shape)


def _sized(card: Card) -> Card:
    room = WIDEST - 2 * PAD
    card["meta"] = clip(card["meta"], room * 0.55, META_PX)
    meta = text_width(card["meta"], META_PX) + GAP if card["meta"] else 0
    card["title"] = clip(card["title"], room - meta, TITLE_PX, bold=True)
    grad = text_width(f"∂ {card['grad']}", VALUE_PX) + GAP if card["grad"] else 0
    card["value"] = clip(card["value"], room - min(grad, room * 0.5), VALUE_PX)
    for tag in card["tags"]:
        tag["text"] = clip(tag["text"], room - 56, TAG_PX)
    widths = [
        text_width(card["title"], TITLE_PX, bold=True) + meta,
        text_width(card["value"], VALUE_PX) + grad,
        *(text_width(f"freed: {t['text']}", TAG_PX) + 14 for t in card["tags"]),
    ]
    rows = VALUE_ROW if card["value"] or card["grad"] else 0
    widths.append(min(len(card.get("bars", ())) * BAR_WIDTH, room))
    card["w"] = round(min(max(*widths, NARROWEST - 2 * PAD), room) + 2 * PAD)
    bars = BARS_ROW if card.get("bars") else 0
    card["h"] = TITLE_ROW + rows + bars + TAG_ROW * len(card["tags"]) + (8 if rows or card["tags"] else 4)
    return card


def _node_details(node: Node, gradient: Plain) -> list[list[str]]:
    rows = [
        ["node", node.name],
        ["kind", KIND_WORDS[node.kind]],
        ["names", ", ".join(node.variables)],
        ["tensor", " ".join(t for t in (shape_text(node.shape), node.dtype, node.device) if t)],
        ["line", str(node.line or "")],
        ["module", node.module or ""],
        ["value", "" if node.value is None else exact(node.value)],
        [".grad" if node.kind == "leaf" else "gradient", "" if gradient is None else exact(gradient)],
    ]
    return [r for r in rows if r[1]] + [[f"saved: {s.slot}", _saved_details(s)] for s in node.saved]


def _saved_details(saved: Saved) -> str:
    if saved.recomputed or saved.shape is None:
        return "a placeholder: its forward runs again when backward asks for it"
    name = _saved_name(saved)
    size = "" if saved.bytes is None else bytes_text(saved.bytes)
    whole = saved.storage_bytes
    by = f" ({saved.changed_by})" if saved.changed_by else ""
    parts = [
        name if saved.leaf or saved.variable or saved.view_of else "",
        f"{shape_text(saved.shape)} {saved.dtype}",
        size,
        f"in storage {saved.storage} of {bytes_text(whole)}" if whole is not None and whole != saved.bytes else "",
        "" if saved.saved_version is None else f"version {saved.saved_version} when saved, {saved.current_version} now",
        f"changed by line {saved.changed_line}{by}" if saved.changed_line else "",
        "freed by backward" if saved.freed else "still kept",
    ]
    return " · ".join(p for p in parts if p)
