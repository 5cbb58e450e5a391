"""What to notice in a graph, computed from the result."""

from __future__ import annotations

from lab.contract import Finding
from lab.experiments.autograd_graph.schema import Result


def explain(result: Result) -> tuple[Finding, ...]:
    """What to notice in this graph, the most important first."""
    return ()
