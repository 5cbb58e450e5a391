"""Operations of a program whose input was connected to a graph and whose result is not, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from lab import torch_private
from lab.instruments.describing.names import Names
from lab.instruments.graph.tensor_log import Operation, State
from lab.records.graph import Plain

Reason = Literal["detach", "no_grad", "inference_mode", "integer", "copy", "leaves torch"]

_COPIES = {torch.tensor, torch.as_tensor, torch.asarray}
_LEAVES_TORCH = {"item", "tolist", "numpy", "__array__", "__float__", "__int__"}
_MOST = 50


@dataclass(eq=False, slots=True)
class SeenCut:
    operation: str
    reason: Reason
    line: int
    source_name: str
    target: int
    """``id`` of the result, 0 when that is no tensor. It gets its name after the operation."""
    module: str | None = None
    state: State | None = None
    """The content of the result."""
    number: Plain = None
    source: State | None = None
    """The content that was cut off."""


class CutLog:
    """Each (operation, line) once, the first ``_MOST`` of them."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], SeenCut] = {}

    def note(self, call: Operation, source: torch.Tensor, result: Any, line: int, names: Callable[[], Names]) -> None:
        """Remember the operation if it cut ``source`` off from its result."""
        func, name = call.func, call.name
        name = "data" if func == torch_private.GET_DATA else name
        target = result if isinstance(result, torch.Tensor) else None
        if (name, line) in self.kept or len(self.kept) >= _MOST or (target is not None and target.requires_grad):
            return
        reason = _reason(func, name, target)
        if reason:
            at = 0 if target is None else id(target)
            self.kept[name, line] = SeenCut(
                name,
                reason,
                line,
                names().of(source),
                at,
                call.module,
                call.results[0] if call.results else None,
                call.plain_result,
                next((use for use in call.uses if use.requires_grad), None),
            )


def _reason(func: Any, name: str, target: torch.Tensor | None) -> Reason | None:
    if name in ("detach", "data"):
        return "detach"
    if name in _LEAVES_TORCH:
        return "leaves torch"
    if target is None:
        return None
    if name.endswith("_like") or name.startswith("new_"):
        return None  # the shape of the source, not its values
    if func in _COPIES:
        return "copy"
    if torch.is_inference_mode_enabled():
        return "inference_mode"
    if not torch.is_grad_enabled():
        return "no_grad"
    return None if target.is_floating_point() or target.is_complex() else "integer"
