"""Why the program ended early, with the tensor named where the graph shows it."""

from __future__ import annotations

from collections.abc import Iterable

from lab.contract import Fault
from lab.program import explain
from lab.program.explain import COPY_FIRST, IN_PLACE, OVERWRITTEN, Row, explain_fault
from lab.records.graph import Node, Saved
from lab.records.program import Ended


def fault_of(ended: Ended | None, nodes: Iterable[Node]) -> Fault | None:
    """The fault of a program that ended early, with the tensor named where the graph shows it."""
    return explain_fault(ended, rows=_ROWS, record=nodes) if ended else None


def explanation_of(kind: str, message: str, nodes: Iterable[Node]) -> tuple[str, str]:
    """(explanation, repair); empty texts when the message says it all."""
    return explain.explanation_of(Ended(kind, message, None), rows=_ROWS, record=nodes)


def overwritten_slots(nodes: Iterable[Node]) -> list[tuple[Node, Saved]]:
    """Saved tensors whose version counter has moved since they were saved."""
    return [
        (node, saved)
        for node in nodes
        for saved in node.saved
        if saved.saved_version is not None and saved.current_version not in (None, saved.saved_version)
    ]


def describe_slot(node: Node, saved: Saved) -> str:
    """The tensor that a slot holds, in words: "its output", "w", "its input self"."""
    if saved.slot.startswith("result"):
        return f"its own output{f' {saved.variable}' if saved.variable else ''}"
    if saved.variable or saved.leaf:
        return str(saved.variable or saved.leaf)
    if saved.shape == () and saved.dtype == "float64" and not saved.view_of:
        return "a constant"
    return f"its input {saved.slot}{f', which is {saved.view_of} seen in another shape,' if saved.view_of else ''}"


def _overwritten(ended: Ended, nodes: Iterable[Node]) -> tuple[str, str] | None:
    for node, saved in overwritten_slots(nodes):
        where = f" on line {node.line}" if node.line else ""
        by = f" by {saved.changed_by} on line {saved.changed_line}" if saved.changed_line else ""
        explanation = (
            f"{node.label}{where} kept {describe_slot(node, saved)} for its backward at version {saved.saved_version}. "
            f"It was overwritten{by} and is now at version {saved.current_version}, so the kept value is gone."
        )
        return explanation, COPY_FIRST
    return None


_ROWS = (Row(IN_PLACE, OVERWRITTEN, COPY_FIRST, deeper=_overwritten),)
