"""What happens to gradients and memory between operations: writes, refusals, optimizer steps, cleared gradients, hooks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lab.instruments.describing.values import tensor_value
from lab.instruments.graph.book import Seen
from lab.instruments.graph.tensor_log import State
from lab.records.graph import Plain
from lab.records.operations import Operand

MOST_WRITES, MOST_REFUSED, MOST_CALLS = 2000, 20, 200


@dataclass(eq=False, slots=True)
class SeenWrite:
    """A version counter that moved, or a write through ``.data`` that moved none."""

    moment: int
    line: int | None
    operation: str
    module: str | None
    caller: str
    """Library function that the program called, such as ``step`` or ``load_state_dict``; empty for the program itself."""
    state: State
    """The tensor as it is after the write."""
    use: State
    """The tensor as the write met it."""
    storage: int
    through_data: bool
    version: int | None
    leaf: Seen | None
    grad_enabled: bool


@dataclass(eq=False, slots=True)
class SeenRefusal:
    """An operation that torch refused."""

    moment: int
    operation: str
    line: int | None
    module: str | None
    kind: str
    message: str
    operands: tuple[Operand, ...]
    grad_enabled: bool


@dataclass(eq=False, slots=True)
class SeenStep:
    """One call of ``Optimizer.step``."""

    moment: int
    line: int | None
    optimizer: str
    parameters: tuple[Seen, ...]
    without_gradient: tuple[Seen, ...]


@dataclass(eq=False, slots=True)
class SeenClear:
    """A ``.grad`` set to None or to zero."""

    moment: int
    line: int | None
    leaf: Seen
    caller: str


@dataclass(eq=False, slots=True)
class SeenHook:
    """A hook that the program put on a tensor, and what it did each time."""

    moment: int
    line: int | None
    kind: str
    state: State
    node: Seen | None
    calls: list[tuple[Plain, Plain]] = field(default_factory=list)
    changed: bool = False


@dataclass(eq=False, slots=True)
class SeenMode:
    """A switch of gradients on or off."""

    moment: int
    line: int | None
    enabled: bool
    inference: bool


@dataclass(eq=False)
class Events:
    """Everything of this kind, in order."""

    writes: list[SeenWrite] = field(default_factory=list)
    refusals: list[SeenRefusal] = field(default_factory=list)
    steps: list[SeenStep] = field(default_factory=list)
    clears: list[SeenClear] = field(default_factory=list)
    hooks: list[SeenHook] = field(default_factory=list)
    modes: list[SeenMode] = field(default_factory=list)


class Watched:
    """A tensor hook of the program, called through: what it got and what it gave back is written down."""

    def __init__(
        self, hook: Callable[..., Any], seen: SeenHook, look: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self._hook, self._seen, self._look = hook, seen, look

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before: Plain = None
        with self._look():
            before = tensor_value(args[0]) if args and isinstance(args[0], torch.Tensor) else None
        given = self._hook(*args, **kwargs)
        with self._look():
            after = tensor_value(given) if isinstance(given, torch.Tensor) else before
            if len(self._seen.calls) < MOST_CALLS:
                self._seen.calls.append((before, after))
            self._seen.changed |= isinstance(given, torch.Tensor) and str(after) != str(before)
        return given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hook, name)


class OptimizerSteps:
    """Context manager that hears of every ``Optimizer.step`` just before it."""

    def __init__(self, report: Callable[[torch.optim.Optimizer], None]) -> None:
        self._report = report
        self._handle: Any = None

    def __enter__(self) -> None:
        report = self._report

        def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            report(optimizer)

        self._handle = register_optimizer_step_pre_hook(before)

    def __exit__(self, *error: object) -> None:
        self._handle.remove()
