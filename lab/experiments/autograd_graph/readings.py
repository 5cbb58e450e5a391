"""Single numbers read from a result, for the lessons."""

from __future__ import annotations

from collections.abc import Iterator

from lab.experiments.autograd_graph.schema import Result
from lab.records.graph import Node, Plain


def flat(value: Plain) -> list[float]:
    """The numbers of a nested list, in order; a length for a list of other things is not a number and gives none."""
    if isinstance(value, list):
        return [number for item in value for number in flat(item)]
    return [float(value)] if isinstance(value, (int, float)) else []


def first_grad(result: Result, name: str) -> float:
    """First element of the ``.grad`` of leaf ``name``; NaN when there is none."""
    return next(iter(_grad(result, name)), float("nan"))


def total(result: Result, name: str) -> float:
    """Sum of the ``.grad`` of leaf ``name``."""
    return sum(_grad(result, name))


def _grad(result: Result, name: str) -> list[float]:
    return next((flat(leaf.grad) for leaf in result.leaves if leaf.name == name), [])


def contributions(result: Result, name: str) -> Iterator[float]:
    """First elements of what each path brought to leaf ``name`` in the last pass."""
    node = next(leaf.node for leaf in result.leaves if leaf.name == name)
    for step in result.backward[-1]:
        for parent, given in zip(step.parents, step.given, strict=True):
            if parent == node:
                yield flat(given)[0]


def pass_names(result: Result, number: int = 0) -> list[str]:
    """Classes of the nodes that a pass ran, in engine order."""
    names = {node.id: node.name for node in _all_nodes(result)}
    return [names[step.node] for step in result.backward[number]]


def _all_nodes(result: Result) -> list[Node]:
    return [*result.nodes, *(node for run in result.passes for node in run.nodes)]


def node_count(result: Result) -> float:
    """Nodes of the graph, leaves included."""
    return float(len(result.nodes))


def kept_after(result: Result) -> float:
    """Bytes that the graph still keeps at the end."""
    return float(result.kept_bytes_after)


def variable(result: Result, name: str) -> float:
    """A variable of the program as a number: its value, or its length when it is a list."""
    value = result.variables[name]
    return float(len(value) if isinstance(value, list) else value)


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    return {
        "nodes": len(result.nodes),
        "saved tensors": sum(len(node.saved) for node in result.nodes),
        "kept_bytes": result.kept_bytes,
        "after backward_bytes": result.kept_bytes_after,
        "backward steps": sum(len(steps) for steps in result.backward),
    }
