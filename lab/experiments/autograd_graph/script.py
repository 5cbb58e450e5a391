"""The program on its own, without the lab."""

from __future__ import annotations

from lab.experiments.autograd_graph.schema import Params


def script(params: Params) -> str:
    """The program as it is, followed by a print of the gradients of its leaves."""
    return params.code
