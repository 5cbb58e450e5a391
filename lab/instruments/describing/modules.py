"""Which ``nn.Module`` is running right now, or was when an error came, as a path below the outermost one."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from lab.instruments.describing.names import modules_of

_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""They run one fused operation in evaluation without gradients, unless a function mode is active."""


def failing_module(trace: TracebackType | None) -> str:
    """In which module an error was raised, and what that got: ``3 (BatchNorm1d), which got [1, 4]``; empty outside of modules.

    The path is that below the outermost module on the way. Runs no code of the program's classes.
    """
    outermost, innermost, got = None, None, ""
    while trace is not None:
        names = trace.tb_frame.f_locals
        module = names.get("self")
        if issubclass(type(module), nn.Module):
            outermost = module if outermost is None else outermost
            if module is not innermost:
                innermost, got = module, ""
            if trace.tb_frame.f_code.co_name == "forward":
                shapes = [
                    _shape(value) for name, value in names.items() if name != "self" and type(value) is torch.Tensor
                ]
                got = f", which got {shapes[0]}" if len(shapes) == 1 else ""
        trace = trace.tb_next
    if innermost is None or outermost is None:
        return ""
    path = next((path for path, module in modules_of(outermost) if module is innermost), "")
    return f"{path} ({type(innermost).__name__})".strip() + got


def _shape(tensor: torch.Tensor) -> str:
    return str(list(tensor.shape))


class ModulePath:
    """Context manager with global forward hooks; ``current()`` is ``"encoder.0.linear1 (Linear)"`` or None."""

    def __init__(self) -> None:
        self._running: list[str] = []
        self._modules: list[nn.Module] = []
        self._paths: dict[int, str] = {}
        self._handles: list[Any] = []
        self.without_fast_path: dict[str, None] = {}
        """Classes of modules that would have taken a fused path, had nobody watched the operations."""

    def __enter__(self) -> ModulePath:
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._start),
            module_hooks.register_module_forward_hook(self._end, always_call=True),
        ]
        return self

    def __exit__(self, *error: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def current(self) -> str | None:
        return self._running[-1] if self._running else None

    def module(self) -> nn.Module | None:
        """The module whose forward runs, innermost."""
        return self._modules[-1] if self._modules else None

    def _start(self, module: nn.Module, inputs: Any) -> None:
        if not self._running:
            self._paths = {id(m): path for path, m in modules_of(module)}
        path = self._paths.get(id(module), "")
        if issubclass(type(module), _FUSED) and not module.training and not torch.is_grad_enabled():
            self.without_fast_path[type(module).__name__] = None
        self._modules.append(module)
        self._running.append(f"{path} ({type(module).__name__})".strip())

    def _end(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._running:
            self._running.pop()
            self._modules.pop()
