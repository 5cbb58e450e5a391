"""Which ``nn.Module`` is running right now, as a path below the outermost module that was called."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from lab.instruments.describing.names import modules_of

_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""They run one fused operation in evaluation without gradients, unless a function mode is active."""


class ModulePath:
    """Context manager with global forward hooks; ``current()`` is ``"encoder.0.linear1 (Linear)"`` or None."""

    def __init__(self) -> None:
        self._running: list[str] = []
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

    def _start(self, module: nn.Module, inputs: Any) -> None:
        if not self._running:
            self._paths = {id(m): path for path, m in modules_of(module)}
        path = self._paths.get(id(module), "")
        if isinstance(module, _FUSED) and not module.training and not torch.is_grad_enabled():
            self.without_fast_path[type(module).__name__] = None
        self._running.append(f"{path} ({type(module).__name__})".strip())

    def _end(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._running:
            self._running.pop()
