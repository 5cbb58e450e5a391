"""What passes through each layer of a model: its output on the way forward, the gradient of its output on the way back.

NOTE How a layer is watched.
1. A forward hook on its module summarises the output at once, before anything writes into it in place.
2. A hook on that output summarises the gradient that arrives, summed over all its uses.
3. A module that runs several times in one forward has all its outputs summarised together.
4. ``into`` says which backward pass is being watched: the loss's, or one from a random cotangent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lab.instruments.describing.lines import program_line
from lab.instruments.gradients.norms import Moments

Into = str
Tensors = Callable[[], list[torch.Tensor]]
LOSS, COTANGENT = "loss", "cotangent"


@dataclass(eq=False)
class Watched:
    """One layer. ``weights`` and ``biases`` give the tensors whose ``.grad`` belongs to it."""

    name: str
    kind: str
    module: nn.Module
    weights: Tensors
    biases: Tensors
    stored: Tensors | None = None
    """The parameters behind ``weights`` where these are views of them."""
    calls: int = 0
    activation: Moments = field(default_factory=Moments)
    gradients: dict[Into, Moments] = field(default_factory=dict)
    recorded: bool = True
    """Whether gradients were switched on in some call of the last forward."""
    line: int | None = None
    """Line of the visitor's program that called it."""
    output: torch.Tensor | None = None
    """Of the last call; kept until the next forward."""


class LayerWatch:
    """Context manager with hooks on ``layers``; ``begin`` before each forward."""

    def __init__(self, layers: Sequence[Watched], file: str = "") -> None:
        """``file``: of the visitor's program, for lines."""
        self._file = file
        self.layers = list(layers)
        self.into: Into = LOSS
        self.order: list[Watched] = []
        """Layers in the order in which they first ran."""
        self.running: list[Watched] = []
        """The layers whose forward is under way, outermost first."""
        self._forward = self._norm_only = False
        self._handles: list[Any] = []

    def __enter__(self) -> LayerWatch:
        for layer in self.layers:
            self._handles += [
                layer.module.register_forward_pre_hook(self._starting(layer)),
                layer.module.register_forward_hook(self._ending(layer), always_call=True),
            ]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def begin(self, *, norm_only: bool = False) -> None:
        """Forget the last step; what runs until ``forward_done`` is a forward pass."""
        self._forward, self.into, self._norm_only = True, LOSS, norm_only
        self.running.clear()
        for layer in self.layers:
            layer.calls, layer.gradients, layer.output, layer.recorded = 0, {}, None, False
            layer.activation = Moments(norm_only=norm_only)

    def forward_done(self) -> None:
        """Modules that run from now on recompute for a checkpoint."""
        self._forward = False

    def current(self) -> Watched | None:
        """The layer that is running, else the one that ran last: its activation function may stand outside of it."""
        return self.running[-1] if self.running else self.order[-1] if self.order else None

    def _starting(self, layer: Watched) -> Callable[..., None]:
        def start(module: nn.Module, inputs: Any) -> None:
            if self._forward:
                self.running.append(layer)
                layer.recorded |= torch.is_grad_enabled()
                layer.line = program_line(self._file)

        return start

    def _ending(self, layer: Watched) -> Callable[..., None]:
        def end(module: nn.Module, inputs: Any, output: Any) -> None:
            if not self._forward:
                return
            if self.running:
                self.running.pop()
            if layer not in self.order:
                self.order.append(layer)
            layer.calls += 1
            self._take(layer, next(floating_tensors(output), None))

        return end

    def _take(self, layer: Watched, output: torch.Tensor | None) -> None:
        layer.output = output
        if output is None:
            return
        layer.activation.add(output)
        if output.requires_grad:
            output.register_hook(lambda gradient: self._arrive(layer, gradient))

    def _arrive(self, layer: Watched, gradient: torch.Tensor) -> None:
        layer.gradients.setdefault(self.into, Moments(norm_only=self._norm_only)).add(gradient)


def floating_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors with a derivative in what a module or a function returned."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from floating_tensors(part)
    elif isinstance(value, dict):
        yield from floating_tensors(list(value.values()))


def blocks(modules: Sequence[tuple[str, nn.Module]]) -> list[Watched]:
    """One layer for each module given: the matrices inside, and the biases beside them; normalisations left out."""
    return [Watched(name, type(m).__name__, m, *_matrices(m)) for name, m in modules]


def owners(model: nn.Module) -> list[Watched]:
    """One layer for each module that owns parameters itself."""
    return [
        Watched(name or "(model)", type(m).__name__, m, *_own_parameters(m))
        for name, m in model.named_modules()
        if any(True for _ in m.parameters(recurse=False))
    ]


def _matrices(module: nn.Module) -> tuple[Tensors, Tensors]:
    weights: list[torch.Tensor] = [p for p in module.parameters() if p.ndim > 1]
    holders = [m for m in module.modules() if any(p.ndim > 1 for p in m.parameters(recurse=False))]
    biases: list[torch.Tensor] = [p for m in holders for p in m.parameters(recurse=False) if p.ndim == 1]
    return lambda: weights, lambda: biases


def _own_parameters(module: nn.Module) -> tuple[Tensors, Tensors]:
    named = list(module.named_parameters(recurse=False))
    biases: list[torch.Tensor] = [p for n, p in named if "bias" in n]
    weights: list[torch.Tensor] = [p for n, p in named if "bias" not in n]
    return lambda: weights or biases, lambda: biases if weights else []
