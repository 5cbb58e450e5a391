"""What the lab puts in place of something of torch while a program runs, and takes away again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch


class CustomFunctions:
    """Context manager that reports (class, arguments, result) of every ``Function.apply``, which no TorchFunctionMode sees."""

    def __init__(self, report: Callable[[type, tuple[Any, ...], Any], None]) -> None:
        self.running = 0
        """How many calls of ``apply`` are under way."""
        self._report = report
        self._original = torch.autograd.Function.__dict__["apply"]

    def __enter__(self) -> None:
        original, report = self._original, self._report

        def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
            self.running += 1
            try:
                result = original.__get__(None, cls)(*args, **kwargs)  # a classmethod in Python or, from 2.15 on, in C
            finally:
                self.running -= 1
            report(cls, args, result)
            return result

        torch.autograd.Function.apply = classmethod(apply)  # pyright: ignore[reportAttributeAccessIssue]

    def __exit__(self, *error: object) -> None:
        torch.autograd.Function.apply = self._original


class EngineRuns:
    """Context manager that passes every run of the engine from Python through ``around(roots, arguments, engine)``.

    A TorchFunctionMode does not see the calls that have gradient edges instead of tensors.
    """

    def __init__(self, around: Callable[[Any, tuple[Any, ...], Callable[[], Any]], Any]) -> None:
        self._around = around
        self._module: Any = torch.autograd
        self._original = self._module._engine_run_backward

    def __enter__(self) -> None:
        def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
            # args: gradients of the roots, retain_graph, create_graph, inputs
            return self._around(roots, args, partial(self._original, roots, *args, **kwargs))

        self._module._engine_run_backward = run

    def __exit__(self, *error: object) -> None:
        self._module._engine_run_backward = self._original
