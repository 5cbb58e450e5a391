"""What a program trains, seen while it runs: the values at the first step, who holds what, gradients at each step, modes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lab import torch_private
from lab.experiments.fine_tuning.tensors import Gradient, gradient_of
from lab.instruments.describing.names import named_tensors, program_scopes
from lab.program.lines import FILE
from lab.program.passing import Passing, line_now

_COPIED = 8_000_000
"""Elements that are copied in all."""
_SWITCHES = 1000
_LOOKED = 30
"""Steps in which every tensor of the program is looked up by name; later every fiftieth."""


@dataclass
class Known:
    """One tensor of the program."""

    tensor: torch.Tensor
    name: str
    before: torch.Tensor
    """Its values when a step was first taken after it was there."""
    gradient: Gradient = "none"
    zero_steps: int = 0
    """Steps in which its gradient was there and all zeros."""
    live_steps: int = 0
    unheld_line: int = 0
    """Line of a step at which it had a gradient and no optimizer held it."""
    frozen_moved: float = 0.0
    """How far steps moved it while requires_grad was off."""
    frozen_line: int = 0
    training_steps: int = 0


@dataclass
class Made:
    """One optimizer."""

    optimizer: Optimizer
    line: int
    names: dict[int, str]
    """Of what it was given, by identity, as the program called it then."""
    tensors: list[torch.Tensor]
    steps: int = 0


@dataclass
class Switched:
    """One call of train or eval by the program."""

    module: nn.Module
    training: bool
    line: int
    step: int


class TrainingWatch:
    """Context manager around the run of a program in this thread. What it has seen stays readable afterwards."""

    def __init__(self) -> None:
        self.optimizers: dict[int, Made] = {}
        self.known: dict[int, Known] = {}
        self.switches: list[Switched] = []
        self.zeroed_line = 0
        """Line of the last zero_grad that left zeros."""
        self.steps = 0
        self.cut_line, self.cut_count = 0, 0
        """Line of a reentrant checkpoint whose result has no graph, and trainable tensors of the module in it."""
        self.modes: dict[int, bool] = {}
        """At the last step, of every module that the program names: whether any was in train mode."""
        self._room = _COPIED
        self._before: dict[int, torch.Tensor] = {}
        self._passing = Passing()

    def __enter__(self) -> TrainingWatch:
        for hook in (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ):
            self._passing.at_end(torch_private.remove_global_hook, hook)
        self._passing.wrap(Optimizer, "__init__", self._make)
        self._passing.wrap(Optimizer, "zero_grad", self._zero)
        self._passing.wrap(nn.Module, "train", self._train)
        self._passing.wrap(nn.Module, "eval", self._eval)
        self._passing.wrap(torch.utils.checkpoint, "checkpoint", self._checkpoint)
        return self

    def __exit__(self, *error: object) -> None:
        self._passing.close()

    def _make(self, original: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        answer = original(optimizer, *args, **kwargs)
        held = [p for group in optimizer.param_groups for p in group["params"]]
        names = {id(t): name for name, t in named_tensors(program_scopes(FILE))}
        self.optimizers[id(optimizer)] = Made(optimizer, line_now(), {id(p): names.get(id(p), "") for p in held}, held)
        return answer

    def _zero(self, original: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        answer = original(optimizer, *args, **kwargs)
        if not kwargs.get("set_to_none", args[0] if args else True):
            self.zeroed_line = line_now()
        return answer

    def _train(self, original: Any, module: nn.Module, mode: bool = True) -> Any:
        self._switched(module, bool(mode))
        return original(module, mode)

    def _eval(self, original: Any, module: nn.Module) -> Any:
        self._switched(module, False)
        return original(module)

    def _switched(self, module: nn.Module, training: bool) -> None:
        if len(self.switches) < _LOOKED:
            self.note(program_scopes(FILE))
        if len(self.switches) < _SWITCHES:
            self.switches.append(Switched(module, training, line_now(), self.steps))

    def _checkpoint(self, original: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(function, *args, **kwargs)
        first = answer[0] if isinstance(answer, tuple) and answer else answer
        trained = [p for p in function.parameters() if p.requires_grad] if isinstance(function, nn.Module) else []
        lost = isinstance(first, torch.Tensor) and first.is_floating_point() and not first.requires_grad
        if lost and trained and kwargs.get("use_reentrant") and torch.is_grad_enabled() and not self.cut_line:
            self.cut_line, self.cut_count = line_now(), len(trained)
        return answer

    def note(self, scopes: list[Any]) -> None:
        """Every tensor with a name in ``scopes`` that is not known yet: its values from now on count as before."""
        for name, tensor in named_tensors(scopes):
            self._know(tensor, name)

    def _know(self, tensor: torch.Tensor, name: str) -> None:
        known = self.known.get(id(tensor))
        if known is not None:
            if name and (not known.name or "." in name > "." in known.name):
                known.name = name
            return
        wanted = tensor.requires_grad or not isinstance(tensor, nn.Parameter)
        if not tensor.is_leaf or tensor.device.type == "meta" or tensor.layout is not torch.strided:
            return
        if tensor.numel() > self._room or not (wanted or isinstance(tensor, nn.Parameter)):
            return
        self._room -= tensor.numel()
        self.known[id(tensor)] = Known(tensor, name, tensor.detach().clone())

    def _before_step(self, optimizer: Optimizer, *rest: Any) -> None:
        if self._passing.depth:
            return
        scopes = program_scopes(FILE)
        if self.steps < _LOOKED or self.steps % 50 == 0:
            self.note(scopes)
            self._unheld(line_now())
            self._note_modes(scopes)
        for p in _held(optimizer):
            self._know(p, "")
            known = self.known.get(id(p))
            if known is None:
                continue
            known.gradient = gradient_of(p)
            known.zero_steps += known.gradient == "zero"
            known.live_steps += known.gradient == "live"
            if not p.requires_grad and p.grad is not None and p.numel() <= self._room:
                self._before[id(p)] = p.detach().clone()

    def _after_step(self, optimizer: Optimizer, *rest: Any) -> None:
        if self._passing.depth:
            return
        self.steps += 1
        made = self.optimizers.get(id(optimizer))
        if made:
            made.steps += 1
        for p in _held(optimizer):
            before = self._before.pop(id(p), None)
            known = self.known.get(id(p))
            if before is not None and known is not None:
                moved = float((p.detach().double() - before.double()).norm())
                known.frozen_moved += moved
                known.frozen_line = known.frozen_line or (line_now() if moved else 0)

    def _unheld(self, line: int) -> None:
        held = {id(p) for made in self.optimizers.values() for p in _held(made.optimizer)}
        for key, known in self.known.items():
            tensor = known.tensor
            asked = key not in held and tensor.requires_grad and tensor.grad is not None and not known.unheld_line
            if asked and gradient_of(tensor) == "live":
                known.unheld_line = line

    def _note_modes(self, scopes: list[Any]) -> None:
        for scope in reversed(scopes):
            for value in scope.values():
                if isinstance(value, nn.Module):
                    self.modes[id(value)] = any(m.training for m in value.modules())


def _held(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
