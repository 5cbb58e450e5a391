"""torchviz's own picture of the same graph, as DOT text: the one people know, and a second opinion."""

from __future__ import annotations

import torch

from lab.instruments.graph.book import Graph
from lab.instruments.graph.program_trace import ProgramTrace

_MOST_NODES = 300
_MOST_CHARACTERS = 200_000


def classic_dot(trace: ProgramTrace, graph: Graph) -> tuple[str, str]:
    """(DOT text, empty) or (empty, why torchviz cannot draw this graph)."""
    if not graph.nodes:
        return "", "There is no graph to draw."
    if len(graph.nodes) > _MOST_NODES:
        return "", f"torchviz draws every node and walks recursively; {len(graph.nodes):,} nodes are too many for it."
    root = graph.nodes[0][0]
    tensor = next((tensor for _, tensor in trace.named() if trace.seen(tensor) is root), None)
    if tensor is None:
        return (
            "",
            "torchviz starts from a tensor, and the program has no name for the last result. Assign it to a variable.",
        )
    return _drawn(tensor, {name: leaf for name, leaf in trace.named() if leaf.requires_grad})


def _drawn(tensor: torch.Tensor, named: dict[str, torch.Tensor]) -> tuple[str, str]:
    try:
        from torchviz import make_dot
    except ImportError as error:  # it needs setuptools from Python 3.12 on
        return "", f"torchviz cannot be imported here: {error}."
    try:
        dot = make_dot(tensor, params=named).source
    except Exception as error:  # noqa: BLE001 - torchviz reads saved tensors of custom Functions, which may be freed
        return (
            "",
            f"torchviz fails on this graph: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}",
        )
    return (dot, "") if len(dot) <= _MOST_CHARACTERS else ("", "torchviz's picture of this graph is too large.")
