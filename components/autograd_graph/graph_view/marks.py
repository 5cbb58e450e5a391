"""What is marked in the program and in the picture: lines that take part in a finding, and what another result lacks."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from components.autograd_graph.graph_view.boxes import Box
from lab.contract import Site
from lab.records.graph import GraphResult, Node


def site_marks(sites: Sequence[Site]) -> list[dict[str, Any]]:
    """Each line once, the first site with rank 0: its rank and what happened there."""
    marks: dict[int, dict[str, Any]] = {}
    for rank, site in enumerate(sites):
        words = f"{site.role}: {site.tensor}" if site.tensor else site.role
        mark = marks.setdefault(site.line, {"line": site.line, "rank": rank, "role": site.role, "text": words})
        if mark["rank"] != rank and words not in mark["text"]:
            mark["text"] += f" · {words}"
    return list(marks.values())


def own_lines(program: str, other: str) -> list[int]:
    """Lines of ``program``, from 1, that ``other`` does not have there."""
    match = difflib.SequenceMatcher(None, other.splitlines(), program.splitlines(), autojunk=False)
    return [n + 1 for tag, _, _, a, b in match.get_opcodes() if tag in ("replace", "insert") for n in range(a, b)]


def own_nodes(nodes: Iterable[Node], program: str, other: GraphResult) -> frozenset[int]:
    """Ids of nodes that the graphs of ``other`` do not have: another operation, or from another line of text."""
    theirs = Counter(_key(n, other.code.splitlines()) for n in _all(other))
    lines, found = program.splitlines(), []
    for node in nodes:
        key = _key(node, lines)
        theirs[key] -= 1
        if theirs[key] < 0:
            found.append(node.id)
    return frozenset(found)


def differs(item: int | Box, own: frozenset[int]) -> bool:
    """Whether a drawn item is, or holds, such a node."""
    return item in own if isinstance(item, int) else any(member in own for member in item.members())


def _all(result: GraphResult) -> list[Node]:
    return [*result.nodes, *(node for run in result.passes for node in run.nodes)]


def _key(node: Node, lines: Sequence[str]) -> tuple[str, str, str]:
    text = lines[node.line - 1].strip() if node.line and node.line <= len(lines) else ""
    return node.name, node.label, text
