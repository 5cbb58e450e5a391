"""One training step, cut where time can go: data, copy, forward, backward, optimizer, waiting for the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset

from lab.workloads.models import Task
from lab.workloads.precision import autocast
from lab.workloads.training_step import Recipe, optimizer_of

PARTS = ("data_loading", "copy_to_device", "forward", "backward", "optimizer", "synchronisation")
"""In the order in which a step runs them."""
Mark = Callable[[str], AbstractContextManager[Any]]
"""Name of a part -> context around it."""


@dataclass(frozen=True)
class Placement:
    """Where and how the model runs."""

    device: str = "cpu"
    compile: bool = False
    channels_last: bool = False


@dataclass(frozen=True)
class Loading:
    """How batches come to be."""

    batch: int
    workers: int = 0
    pin_memory: bool = False
    decode_us: int = 0
    """Work in Python for each sample, which stands for decoding."""


class Samples(Dataset):
    """The samples of one batch, over and over. Each costs ``decode_us`` of Python."""

    def __init__(self, inputs: torch.Tensor, target: torch.Tensor, decode_us: int) -> None:
        self.inputs, self.target, self.decode_s = inputs, target, decode_us / 1e6

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        end = time.perf_counter() + self.decode_s
        while time.perf_counter() < end:
            pass
        at = index % len(self.inputs)
        return self.inputs[at], self.target[at]


class TimedStep(Protocol):
    """``step(mark)`` runs one training step, each part inside ``mark(part)``; ``close`` ends its loader's processes."""

    def __call__(self, mark: Mark) -> None: ...
    def close(self) -> None: ...


class _Trainer:
    """Forward, backward and optimizer around a model that is already where it should be."""

    def __init__(self, model: torch.nn.Module, recipe: Recipe, device: str) -> None:
        self._device, self._precision, self._set_to_none = device, recipe.precision, recipe.set_to_none
        self._optimizer = optimizer_of(model, recipe)
        self._scaler = torch.amp.GradScaler(device, enabled=recipe.precision == "fp16_autocast")

    def train(self, loss_of: Callable[[], torch.Tensor], mark: Mark) -> None:
        with mark("forward"), autocast(self._device, self._precision):
            loss = loss_of()
        with mark("backward"):
            self._scaler.scale(loss).backward()
        with mark("optimizer"):
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._optimizer.zero_grad(set_to_none=self._set_to_none)
        with mark("synchronisation"):
            loss.item()  # what a progress line does: waits until the device is done


class LoadedStep:
    """A step of one of the lab's models, fed by a DataLoader."""

    def __init__(self, task: Task, recipe: Recipe, placement: Placement, loading: Loading) -> None:
        self._device, self._criterion = placement.device, task.criterion
        self._samples = Samples(task.inputs[0].cpu(), task.target.cpu(), loading.decode_us)
        self._pin = loading.pin_memory and self._device == "cuda"
        self._loader = DataLoader(
            self._samples, loading.batch, num_workers=loading.workers, pin_memory=self._pin, drop_last=True
        )
        self._batches: Iterator[Any] | None = iter(self._loader)
        self._dtype = torch.bfloat16 if recipe.precision == "bf16" else None
        self._format = torch.channels_last if placement.channels_last and self._samples.inputs.ndim == 4 else None
        model = task.model.to(device=self._device, dtype=self._dtype)
        if self._format:
            model = model.to(memory_format=self._format)  # pyright: ignore[reportCallIssue] - missing from the stubs
        self._trainer = _Trainer(model, recipe, self._device)
        self._is_compiled = placement.compile
        self._model: Callable[..., torch.Tensor] = torch.compile(model) if placement.compile else model

    def __call__(self, mark: Mark) -> None:
        assert self._batches is not None, "the step is closed"
        with mark("data_loading"):
            inputs, target = next(self._batches)
        with mark("copy_to_device"):
            inputs, target = self._placed(inputs), target.to(self._device, non_blocking=self._pin)
        self._trainer.train(lambda: self._criterion(self._model(inputs), target), mark)

    def _placed(self, inputs: torch.Tensor) -> torch.Tensor:
        dtype = self._dtype if inputs.is_floating_point() else None
        if self._format is None:
            return inputs.to(self._device, dtype, non_blocking=self._pin)
        return inputs.to(self._device, dtype, non_blocking=self._pin, memory_format=self._format)

    def close(self) -> None:
        """End the loader's processes, and let go of what was compiled."""
        self._batches = None
        if self._is_compiled:
            torch.compiler.reset()


class OwnStep:
    """A step of a visitor's model. Its batch is there already, unless the program has a loader that makes one a step."""

    def __init__(
        self,
        model: torch.nn.Module,
        loss: Callable[[], torch.Tensor],
        recipe: Recipe,
        device: str,
        loader: Iterable[Any] | None = None,
        loss_of: Callable[[Any], Callable[[], torch.Tensor]] | None = None,
    ) -> None:
        """``loss_of``: batch of ``loader`` -> its loss, for a step that fetches its batch."""
        self._loss, self._trainer = loss, _Trainer(model, recipe, device)
        self._loader, self._loss_of = loader, loss_of
        self._batches: Iterator[Any] = iter(())

    def __call__(self, mark: Mark) -> None:
        loss = self._loss
        if self._loader is not None and self._loss_of is not None:
            with mark("data_loading"):
                batch = self._next_batch(self._loader)
            loss = self._loss_of(batch)
        self._trainer.train(loss, mark)

    def _next_batch(self, loader: Iterable[Any]) -> Any:
        """The next one; after the last the loader begins again, as in the next epoch."""
        for batch in self._batches:
            return batch
        self._batches = iter(loader)
        return next(self._batches)

    def close(self) -> None:
        """End the loader's processes."""
        self._batches = iter(())
