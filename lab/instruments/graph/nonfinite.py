"""Where NaN or infinity began in the forward: operations that made it out of numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from lab.instruments.describing.values import is_readable
from lab.instruments.graph.tensor_log import Operation, State
from lab.records.graph import Plain
from lab.records.operations import Operand

_MOST = 12


@dataclass(eq=False, slots=True)
class SeenNonFinite:
    call: Operation
    state: State
    kind: Literal["NaN", "infinity"]
    index: tuple[int, ...]
    count: int
    elements: int
    operands: tuple[Operand, ...]
    at_index: tuple[Plain, ...]
    result: Plain


class NonFiniteLog:
    """Operations that made NaN without having been given NaN, or infinity out of finite numbers.

    Of each (operation, line) the first and the last time, for ``_MOST`` of them.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, int | None], SeenNonFinite] = {}
        self._last: dict[tuple[str, int | None], SeenNonFinite] = {}

    @property
    def kept(self) -> list[SeenNonFinite]:
        """In the order in which they ran."""
        return sorted([*self._first.values(), *self._last.values()], key=lambda seen: seen.call.number)

    def note(
        self,
        call: Operation,
        tensors: list[tuple[torch.Tensor, State]],
        results: list[tuple[torch.Tensor, State]],
        describe: Callable[[torch.Tensor], Operand],
    ) -> None:
        """Look at one operation with a result that is not finite."""
        key = (call.name, call.line)
        if len(self._first) >= _MOST and key not in self._first:
            return
        for result, state in results:
            kind = _began(state, [use for _, use in tensors])
            if kind is None or not is_readable(result):
                continue
            bad = result.detach().isnan() if kind == "NaN" else result.detach().isinf()
            count = int(bad.sum())
            if not count:
                continue
            index = tuple(int(i) for i in bad.nonzero()[0])
            found = SeenNonFinite(
                call,
                state,
                kind,
                index,
                count,
                result.numel(),
                tuple(describe(t) for t, _ in tensors[:4]),
                tuple(_at(t, result, index, use) for t, use in tensors[:4]),
                result.detach()[index].item(),
            )
            if self._first.setdefault(key, found) is not found:
                self._last[key] = found
            return


def _began(state: State, uses: list[State]) -> Literal["NaN", "infinity"] | None:
    if state.nan and not any(use.nan for use in uses):
        return "NaN"
    if state.infinite and not state.nan and not any(use.nan or use.infinite for use in uses):
        return "infinity"
    return None


def _at(operand: torch.Tensor, result: torch.Tensor, index: tuple[int, ...], use: State) -> Plain:
    """The operand's element that became ``result[index]``; None where shapes say nothing, or where it was overwritten."""
    if operand is result or not is_readable(operand):
        value: Any = use.value
        for i in index if operand is result and isinstance(value, list) else ():
            value = value[i]
        return value if isinstance(value, (int, float)) else None
    try:
        return operand.detach().expand(result.shape)[index].item()
    except RuntimeError:
        return None
