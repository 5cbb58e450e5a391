"""What goes on being random, or goes on using the batch, while every module is in eval mode.

Sees each torch function at the top level (a TorchFunctionMode) and compares the state of the random generator before
and after: whatever moved it is random. Functions with a ``training`` argument that was True are seen by that.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from lab.instruments.describing.modules import ModulePath
from lab.records.modes_models import Ignorer

MOST = 100
"""Calls that are kept."""


class ModeWatch(TorchFunctionMode):
    """Context manager; ``found`` lists the calls. ``file``: file name of the visitor's program, for lines."""

    def __init__(self, file: str, device: str) -> None:
        super().__init__()
        self.found: list[Ignorer] = []
        self.modules: list[nn.Module | None] = []
        """In whose forward each of them ran."""
        self.file, self.device, self._path = file, device, ModulePath()

    def __enter__(self) -> ModeWatch:
        self._path.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._path.__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _can_ignore(func):
            return func(*args, **kwargs)
        before = self._random_state()
        result = func(*args, **kwargs)
        random = not torch.equal(before, self._random_state())
        argument = _argument(func, args, kwargs)
        uses_batch = func in _NORMS and argument in ("training=True", "use_input_stats=True")
        if (random or uses_batch) and len(self.found) < MOST:
            kind = "random" if random else "batch statistics"
            self.modules.append(self._path.module())
            self.found.append(Ignorer(_name(func), argument, self._path.current() or "", self._line(), kind))
        return result

    def _random_state(self) -> torch.Tensor:
        return torch.cuda.get_rng_state() if self.device == "cuda" else torch.get_rng_state()

    def _line(self) -> int | None:
        frame = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                return frame.f_lineno
            frame = frame.f_back
        return None


_NORMS = (F.batch_norm, F.instance_norm)
_DECIDES = ("training", "train", "use_input_stats", "dropout_p")


def _can_ignore(func: Callable[..., Any]) -> bool:
    """Attribute reads and the like are many and never random; asking the generator costs a copy of 5 kB."""
    return getattr(func, "__name__", "") not in ("__get__", "size", "dim", "shape")


def _argument(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The argument that decides, as it was called."""
    names: dict[str, Any] = dict(kwargs)
    try:
        bound = inspect.signature(func).bind(*args, **kwargs)
        bound.apply_defaults()
        names = bound.arguments
    except (TypeError, ValueError):  # functions written in C++ have no signature
        pass
    return next((f"{name}={names[name]}" for name in _DECIDES if name in names), "")


def _name(func: Any) -> str:
    module = (getattr(func, "__module__", None) or "torch").removeprefix("torch.nn.functional")
    prefix = (
        "F."
        if module in ("", "torch._C._nn")
        else "Tensor."
        if "Tensor" in getattr(func, "__qualname__", "")
        else "torch."
    )
    return prefix + getattr(func, "__name__", str(func))
