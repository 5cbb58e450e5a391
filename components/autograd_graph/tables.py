"""The tables behind the autograd picture: a result -> rows with the help of each column."""

from __future__ import annotations

from typing import Any

import streamlit as st

from components.autograd_graph.classic_picture import classic_picture
from components.kit.tables import draw_table, plain_text
from lab.quantities import short_bytes_text
from lab.records.graph import GraphResult

STEPS = {
    "step": "Position in the order in which the engine ran the nodes.",
    "pass": "Which backward call, in order.",
    "node": "Class of the node.",
    "line": "Line of the program.",
    "incoming": "Gradient that arrived, summed over all paths.",
    "handed on": "Gradient handed to each parent, in the order of the inputs.",
    "grad before": "For a leaf: .grad before the incoming gradient was added.",
    "grad after": "For a leaf: .grad afterwards.",
}
SAVED = {
    "node": "The node that keeps it for its backward.",
    "line": "Line of the program.",
    "slot": "Name in the derivative formula.",
    "shape": "Empty for a checkpoint: recomputed when backward asks for it.",
    "dtype": "",
    "storage": "Equal numbers are one piece of memory.",
    "bytes": "Size of the whole storage that it keeps alive.",
    "size": "The same with a unit.",
    "saved version": "Version counter when it was saved.",
    "current version": "Version counter now. Larger means written in place since.",
    "leaf": "Name of the leaf that it is.",
    "freed": "Backward has let go of it.",
}
LEAVES = {"name": "", "shape": "", "grad": ".grad at the end. Empty: None."}
TENSORS = {
    "name": "The program's name for it.",
    "requires_grad": "",
    "is_leaf": "Made by the program, not by an operation that autograd recorded.",
    "grad_fn": "Class of the node that made it. Empty: no node.",
    "grad": "",
    "line": "Line of the program.",
    "shape": "",
    "dtype": "",
    "device": "",
}
VARIABLES = {"name": "Variable of the program.", "value": "Its value at the end."}


def steps_table(result: GraphResult) -> list[dict[str, Any]]:
    """One row a step of every backward pass, in engine order."""
    nodes = {n.id: n for n in result.nodes} | {n.id: n for p in result.passes for n in p.nodes}
    return [
        {
            "step": number,
            "pass": turn,
            "node": nodes[step.node].name if step.node in nodes else f"node {step.node}",
            "line": nodes[step.node].line if step.node in nodes else None,
            "incoming": plain_text(step.incoming),
            "handed on": ", ".join(plain_text(value) for value in step.given),
            "grad before": plain_text(step.before) if step.after is not None else "",
            "grad after": plain_text(step.after) if step.after is not None else "",
        }
        for turn, steps in enumerate(result.backward, 1)
        for number, step in enumerate(steps, 1)
    ]


def saved_table(result: GraphResult) -> list[dict[str, Any]]:
    """One row a saved tensor."""
    return [
        {
            "node": node.name,
            "line": node.line,
            "slot": saved.slot,
            "shape": "" if saved.shape is None else str(list(saved.shape)),
            "dtype": saved.dtype,
            "storage": saved.storage,
            "bytes": saved.storage_bytes,
            "size": "" if saved.storage_bytes is None else short_bytes_text(saved.storage_bytes),
            "saved version": saved.saved_version,
            "current version": saved.current_version,
            "leaf": saved.leaf or "",
            "freed": saved.freed,
        }
        for node in result.nodes
        for saved in node.saved
    ]


def leaves_table(result: GraphResult) -> list[dict[str, Any]]:
    """One row a leaf of the graph."""
    return [
        {"name": leaf.name, "shape": str(list(leaf.shape)), "grad": plain_text(leaf.grad)} for leaf in result.leaves
    ]


def tensors_table(result: GraphResult) -> list[dict[str, Any]]:
    """One row a tensor that has a name at the end, in the graph or not."""
    return [
        {name: getattr(named, name) for name in TENSORS}
        | {"shape": str(list(named.shape)), "grad": plain_text(named.grad)}
        for named in result.tensors
    ]


def variables_table(result: GraphResult) -> list[dict[str, Any]]:
    """One row a variable of the program."""
    return [{"name": name, "value": plain_text(value)} for name, value in result.variables.items()]


_TABLES = {
    "Backward order": (steps_table, STEPS, "No backward pass ran."),
    "Saved tensors": (saved_table, SAVED, "No node keeps a tensor."),
    "Leaves": (leaves_table, LEAVES, "The graph has no leaf."),
    "Named tensors": (tensors_table, TENSORS, "No tensor has a name."),
    "Variables": (variables_table, VARIABLES, "No variable was set."),
}


def draw_details(result: GraphResult, key: str) -> None:
    """The tables behind the picture and torchviz's picture, in tabs. Only the open tab is made."""
    *tabs, classic = st.tabs([*_TABLES, "Classic picture"], key=f"{key}-details", on_change="rerun")
    for tab, (name, (rows, helps, empty)) in zip(tabs, _TABLES.items(), strict=True):
        if tab.open:
            with tab:
                draw_table(rows(result), helps, f"{key}-{name}", empty)
    if classic.open:
        with classic:
            classic_picture(result.classic, result.no_classic, description="The same graph as torchviz draws it.")
