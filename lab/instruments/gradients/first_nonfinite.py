"""The first operation that made a NaN or an infinity out of finite numbers, forward or backward.

NOTE How it is found.
1. A TorchFunctionMode looks at every result: NaN that no input had, or an infinity where all inputs were finite. What
   only fills in a constant, such as a mask of -inf, does not count.
2. When the loss is finite, the backward pass of the same graph is run with a hook on every node: finite gradients come
   in, and something else goes out.
3. Running the step again needs the same random numbers: the caller restores the generator's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from lab.instruments.describing.lines import program_line
from lab.instruments.gradients.layer_watch import floating_tensors
from lab.records.gradients import FirstNonfinite

_CONSTANTS = {
    "masked_fill",
    "masked_fill_",
    "full",
    "full_like",
    "tensor",
    "fill_",
    "where",
    "new_full",
    "triu",
    "tril",
}


_EDGES = {"log", "log2", "log10", "sqrt", "rsqrt", "reciprocal"}
"""Elementwise functions with an edge in their domain: the value that they got says all."""


class ForwardSearch(TorchFunctionMode):
    """Watch one forward pass. ``layer`` names whichever layer is running; ``file``: of the visitor's program, for lines."""

    def __init__(self, layer: Callable[[], str], file: str = "") -> None:
        super().__init__()
        self.lines: dict[Node, int | None] = {}
        """The line of the program on which each node was made."""
        self._file = file
        self.found: FirstNonfinite | None = None
        self.layers: dict[Node, str] = {}
        """The layer in which each node of the graph was made."""
        self._layer = layer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "operation")
        inputs = [] if self.found else list(floating_tensors([*args, *(kwargs or {}).values()]))
        before, values = [_kinds(t) for t in inputs], inputs[0].detach().clone() if name in _EDGES and inputs else None
        result = func(*args, **(kwargs or {}))
        for tensor in floating_tensors(result):
            if tensor.grad_fn is not None:
                self.layers.setdefault(tensor.grad_fn, self._layer())
                self.lines.setdefault(tensor.grad_fn, program_line(self._file))
            if not self.found and name not in _CONSTANTS and not name.startswith("__get__"):
                self._look(name, before, tensor, values)
        return result

    def _look(
        self, name: str, before: list[tuple[bool, bool]], result: torch.Tensor, values: torch.Tensor | None
    ) -> None:
        has_nan, has_inf = _kinds(result)
        new_nan = has_nan and not any(nan for nan, _ in before)
        new_inf = has_inf and not any(nan or inf for nan, inf in before)
        if new_nan or new_inf:
            line, got = program_line(self._file), _got(values, result)
            self.found = FirstNonfinite(self._layer(), name.strip("_"), "forward", _value(result), line, got)


def _got(values: torch.Tensor | None, result: torch.Tensor) -> float | None:
    """The input at the first place where an elementwise result is not finite; None where they do not match."""
    if values is None or values.shape != result.shape:
        return None
    return float(values.flatten()[int((~result.detach().isfinite()).flatten().int().argmax())])


def search_backward(
    loss: torch.Tensor, layers: dict[Node, str], lines: dict[Node, int | None] | None = None
) -> FirstNonfinite | None:
    """Run ``loss.backward()`` and return the first node that turned finite gradients into something else."""
    found: list[FirstNonfinite] = []
    finite: dict[Node, bool] = {}
    handles = []
    for node in _nodes(loss):

        def arrive(grads: tuple[torch.Tensor | None, ...], node: Node = node) -> None:
            finite[node] = _all_finite(grads)

        def leave(given: Any, grads: Any, node: Node = node) -> None:
            if not found and finite.get(node) and not _all_finite(given):
                bad = next(g for g in given if g is not None and not _all_finite((g,)))
                operation = node.name().removesuffix("0").removesuffix("Backward").lower()
                line = (lines or {}).get(node)
                found.append(
                    FirstNonfinite(layers.get(node, ""), f"backward of {operation}", "backward", _value(bad), line)
                )

        handles += [node.register_prehook(arrive), node.register_hook(leave)]
    try:
        loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _nodes(loss: torch.Tensor) -> Iterator[Node]:
    todo, seen = [loss.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            todo.extend(parent for parent, _ in node.next_functions)


def _kinds(tensor: torch.Tensor) -> tuple[bool, bool]:
    """(has NaN, has an infinity)."""
    values = tensor.detach()
    return bool(values.isnan().any()), bool(values.isinf().any())


def _all_finite(grads: tuple[torch.Tensor | None, ...]) -> bool:
    return all(bool(g.isfinite().all()) for g in grads if g is not None)


def _value(tensor: torch.Tensor) -> str:
    values = tensor.detach()
    if bool(values.isnan().any()):
        return "NaN"
    return "infinity" if bool((values == float("inf")).any()) else "−infinity"
