"""Norms of the gradients that reach a box during a pass: one number, and a bar for each round of a repetition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from components.autograd_graph.graph_view.boxes import Box
from components.autograd_graph.graph_view.notation import number
from lab.records.graph import Node, Plain

BARS_LIMIT = 140
"""Rounds of a repetition that are drawn as bars; each is two pixels wide at least."""
_LOWEST = 0.08
"""Height of the lowest bar, of 1."""
_DECADES = 1.0
"""The bars span at least so many powers of ten: equal norms look equal."""


def norm_of(gradient: Plain) -> float | None:
    """Euclidean norm of a gradient as it is recorded; None where there is none."""
    if gradient is None:
        return None
    if isinstance(gradient, dict):
        gradient = gradient.get("norm")
        return None if gradient is None else float(gradient)
    if isinstance(gradient, list):
        parts = [norm_of(part) for part in gradient]
        return None if None in parts else math.hypot(*(part for part in parts if part is not None))
    return abs(complex(gradient) if isinstance(gradient, str) and "j" in gradient else float(gradient))


class Arriving:
    """What one pass brings to boxes: the gradient at the first of their functions that runs."""

    def __init__(self, gradients: Mapping[int, Plain], nodes: Mapping[int, Node]) -> None:
        self.gradients, self.nodes = gradients, nodes
        self.turn = {node: at for at, node in enumerate(gradients)}

    def at(self, item: int | Box) -> float | None:
        """Norm of the gradient that arrives at ``item``; None when the pass does not run it."""
        members = item.members() if isinstance(item, Box) else (item,)
        ran = [i for i in members if i in self.turn and self.nodes[i].kind != "leaf"]
        return norm_of(self.gradients[min(ran, key=self.turn.__getitem__)]) if ran else None

    def card(self, box: Box) -> dict[str, Any]:
        """What a closed box says: ``grad``, rows of ``details``, and the ``bars`` of a repetition, last round at the end."""
        rounds = [self.at(one) for one in box.rounds]
        if not box.rounds or None in rounds:
            norm = self.at(box)
            if norm is None:
                return {}
            return {"grad": f"norm {number(norm)}", "details": [["gradient that arrives", f"norm {norm!r}"]]}
        norms = [norm for norm in rounds if norm is not None]
        low, high = min(norms), max(norms)
        told = {
            "grad": f"norm {number(low)} … {number(high)}" if low < high else f"norm {number(low)}",
            "details": [["gradients that arrive", f"norm {low!r} … {high!r}, last round first to run"]],
        }
        if len(norms) > BARS_LIMIT:
            return told
        names = [one.title if isinstance(one, Box) else self.nodes[one].label for one in box.rounds]
        bars = [
            {"h": height, "text": f"{name}: the gradient that arrives has norm {number(norm, 4)}", "fault": not math.isfinite(norm)}
            for name, norm, height in zip(names, norms, heights(norms), strict=True)
        ]  # fmt: skip
        return told | {"bars": bars}


def heights(norms: list[float]) -> list[float]:
    """Of bars on a logarithmic scale from 0 to 1; zero is no bar, what is not finite is a whole one."""
    known = [math.log10(norm) for norm in norms if 0 < norm < math.inf]
    top = max(known, default=0.0)
    span = max(top - min(known, default=0.0), _DECADES)

    def height(norm: float) -> float:
        if norm == 0:
            return 0.0
        share = (math.log10(norm) - top) / span + 1 if norm < math.inf else 1.0
        return round(_LOWEST + (1 - _LOWEST) * share, 3)

    return [height(norm) for norm in norms]
