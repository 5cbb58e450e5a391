"""A training loop as people write it, with every choice that changes what is in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from lab.workloads.optimizers import implementation, make_optimizer
from lab.workloads.precision import autocast

Loss = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Recipe:
    """How one step is done."""

    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = "adamw"
    optimizer_impl: Literal["forloop", "foreach", "fused"] = "forloop"
    precision: Literal["fp32", "bf16_autocast", "fp16_autocast", "bf16"] = "fp32"
    one_backward: bool = False
    """Add the losses of the micro-batches and call backward once, instead of once for each."""
    zero_grad: Literal["before_forward", "before_backward", "after_step"] = "before_forward"
    set_to_none: bool = True
    retain_graph: bool = False
    mode: Literal["train", "no_grad", "inference_mode", "forgot"] = "train"
    """``forgot``: forward only, without switching gradients off."""
    leak: Literal["none", "loss", "loss_without_backward", "item"] = "none"


@dataclass
class MicroBatches:
    """A model and one batch: ``losses`` has one function for each micro-batch, which runs the forward."""

    model: nn.Module
    inputs: Mapping[str, torch.Tensor]
    losses: list[Loss]


class Watch:
    """What a measurement may hear of the loop; by itself it hears nothing."""

    def step(self, number: int) -> None:
        """Step ``number`` begins."""

    def step_done(self) -> None:
        """It is over; ``loss`` still has its name."""

    def phase(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """Around each part of a step."""
        return contextlib.nullcontext()

    def forward_done(self, loss: torch.Tensor) -> None:
        """A micro-batch has its loss, and backward has not run."""


@dataclass
class Training:
    """A task with its optimizer. ``run`` may be called again: gradients and optimizer state stay."""

    task: MicroBatches
    recipe: Recipe
    optimizer: torch.optim.Optimizer = field(init=False)
    scaler: torch.amp.GradScaler = field(init=False)
    loss: torch.Tensor | None = field(init=False, default=None)
    kept: list[Any] = field(default_factory=list, repr=False)
    """``losses.append(loss)``."""

    def __post_init__(self) -> None:
        self.device = next(self.task.model.parameters()).device.type
        self.optimizer = optimizer_of(self.task.model, self.recipe)
        enabled = self.recipe.precision == "fp16_autocast" and self.recipe.mode == "train"
        self.scaler = torch.amp.GradScaler(self.device, enabled=enabled)

    def run(self, steps: int, watch: Watch | None = None) -> None:
        """``steps`` steps. ``loss`` is one name, as in a script: its graph lives until the next loss takes its place."""
        watch = watch or Watch()
        for number in range(steps):
            watch.step(number)
            if self.recipe.mode == "train" and self.recipe.leak != "loss_without_backward":
                self._train(watch)
            else:
                for micro in self.task.losses:
                    self._evaluate(micro, watch)
                    self._keep()
            watch.step_done()
        self.loss = None

    def _train(self, watch: Watch) -> None:
        recipe, losses, total = self.recipe, self.task.losses, None
        if recipe.zero_grad == "before_forward":
            self._clear(watch)
        for number, micro in enumerate(losses):
            with watch.phase("forward"), autocast(self.device, self.recipe.precision):
                self.loss = micro() / len(losses) if len(losses) > 1 else micro()
                if recipe.one_backward:
                    total = self.loss if total is None else total + self.loss
            watch.forward_done(self.loss)
            if recipe.one_backward and number < len(losses) - 1:
                continue
            if recipe.zero_grad == "before_backward" and (number == 0 or recipe.one_backward):
                self._clear(watch)
            with watch.phase("backward"):
                whole = self.loss if total is None else total
                self.scaler.scale(whole).backward(retain_graph=recipe.retain_graph)
            self._keep()
        with watch.phase("optimizer"):
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if recipe.zero_grad == "after_step":
            self._clear(watch)

    def _evaluate(self, micro: Loss, watch: Watch) -> None:
        off = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
        with (
            off.get(self.recipe.mode, contextlib.nullcontext)(),
            watch.phase("forward"),
            autocast(self.device, self.recipe.precision),
        ):
            self.loss = micro()
        watch.forward_done(self.loss)

    def _keep(self) -> None:
        if self.recipe.leak != "none" and self.loss is not None:
            self.kept.append(self.loss.item() if self.recipe.leak == "item" else self.loss)

    def _clear(self, watch: Watch) -> None:
        with watch.phase("zero_grad"):
            self.optimizer.zero_grad(set_to_none=self.recipe.set_to_none)


def optimizer_of(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimizer that the recipe names."""
    return make_optimizer(recipe.optimizer, model.parameters(), **implementation(recipe.optimizer_impl))
