"""The step to profile: one of the lab's models, or the model that a visitor's program defines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader

from lab.contract import Fault
from lab.experiments.op_profile.schema import Params
from lab.program import run as program
from lab.program.explain import Row, explain_fault
from lab.program.own_model import OwnModel, OwnModelError, own_model
from lab.program.trained import model_of
from lab.records.program import SILENT, Ended, Said
from lab.workloads import models
from lab.workloads.profiled_step import LoadedStep, Loading, OwnStep, Placement, TimedStep
from lab.workloads.training_step import Recipe

FILES = (program.FILE, models.__file__)
"""Whose lines are shown: the program's, and those of the lab's models."""


@dataclass(frozen=True)
class Subject:
    """A step and what is said about it."""

    step: TimedStep
    notes: tuple[str, ...] = ()
    ran: program.Ran | None = None
    """The visitor's program."""
    own: tuple[OwnModel, dict[str, Any], DataLoader | None] | None = None
    """Its model, its names, and the loader that feeds the step."""


@dataclass(frozen=True)
class NoStep:
    """A program that gives no step, and why."""

    fault: Fault
    said: Said = SILENT


def subject(params: Params) -> Subject | NoStep:
    """Build it. A program that gives no step is data."""
    recipe = _recipe(params)
    if params.model == "own":
        return _own_subject(params, recipe)
    task = models.build(params.model, layers=params.layers, width=params.width, batch=params.batch, seq=params.seq)
    loading = Loading(params.batch, params.workers, params.pin_memory, params.decode_us)
    placement = Placement(params.device, params.compile, params.channels_last)
    return Subject(LoadedStep(task, recipe, placement, loading), tuple(_without_effect(params)))


def _recipe(params: Params) -> Recipe:
    return Recipe(
        optimizer=params.optimizer,  # pyright: ignore[reportArgumentType] - the knob's choices are the recipe's
        optimizer_impl=params.optimizer_impl,  # pyright: ignore[reportArgumentType]
        precision=params.precision,  # pyright: ignore[reportArgumentType]
        set_to_none=params.set_to_none,
    )


def _without_effect(params: Params) -> list[str]:
    notes = []
    if params.pin_memory and params.device == "cpu":
        notes.append(
            "pin_memory has no effect: pinned memory speeds up copies to a CUDA device, and this step has none."
        )
    if params.channels_last and params.model != "cnn":
        notes.append(f"channels_last has no effect: it orders the memory of images, and {params.model} has none.")
    if params.optimizer_impl == "foreach" and params.device == "cpu":
        notes.append("foreach on a CPU launches no fewer kernels: it loops inside one call.")
    return notes


def _own_subject(params: Params, recipe: Recipe) -> Subject | NoStep:
    ran = program.run_typed(params, share=0.3)
    if ran.ended:
        return NoStep(fault_of(ran.ended, params), ran.said)
    try:
        own, names = model_of(ran), ran.namespace
        feed = own_loader(names)
        if params.precision == "bf16":
            own.model.to(torch.bfloat16)
        if not any(p.requires_grad for p in own.model.parameters()):
            raise OwnModelError("The model has no parameter that requires gradients: there is nothing to train.")
        if feed is not None and _fetches(names, own, feed):
            feed = None
        step = _own_step(own, names, feed, recipe, params)
        return Subject(step, tuple(_unused(params)), ran, (own, names, feed))
    except Exception as error:  # noqa: BLE001 - classes of the program may raise anything when they are looked at
        return NoStep(fault_of(error, params), ran.said)


def _own_step(own: OwnModel, names: dict[str, Any], feed: DataLoader | None, recipe: Recipe, params: Params) -> OwnStep:
    return OwnStep(own.model, own.loss, recipe, params.device, feed, lambda batch: _loss_of(own, names, batch))


def _loss_of(own: OwnModel, names: dict[str, Any], batch: Any) -> Callable[[], torch.Tensor]:
    """The loss on a batch of the loader. Where the program trained, its own statements, with the tensors in their order."""
    known = own.batch
    if own.loss_of and isinstance(known, Mapping) and isinstance(batch, (list, tuple)) and len(known) == len(batch):
        pairs = list(zip(known.items(), batch, strict=True))
        if all(isinstance(new, torch.Tensor) and new.shape[1:] == old.shape[1:] for (_, old), new in pairs):
            return own.loss_of(own.model, {name: new for (name, _), new in pairs})
    return own_model({**names, "batch": batch}).loss


_LOADERS = ("loader", "train_loader", "dataloader", "train_dataloader", "data_loader", "trainloader", "train_dl", "dl")


def own_loader(names: Mapping[str, Any]) -> DataLoader | None:
    """The program's DataLoader: by its usual names, else the only one."""
    found = {name: value for name, value in names.items() if isinstance(value, DataLoader)}
    usual = next((found[name] for name in _LOADERS if name in found), None)
    return usual if usual is not None or len(found) != 1 else next(iter(found.values()))


def _fetches(names: Mapping[str, Any], own: OwnModel, loader: DataLoader) -> bool:
    """Whether the step fetches its batches itself, or cannot use those of the loader as they come."""
    fetched = []
    fetch = type(loader).__iter__
    before = torch.get_rng_state()

    class Noted(type(loader)):
        def __iter__(self) -> Any:
            fetched.append(self)
            return fetch(self)

    original = type(loader)
    loader.__class__ = Noted
    try:
        with torch.no_grad():
            own.loss()
            loader.__class__ = original
            if fetched:
                return True
            _loss_of(own, dict(names), next(iter(loader)))()
    except Exception:  # noqa: BLE001 - its batches are not what the model takes
        return True
    finally:
        loader.__class__ = original
        torch.set_rng_state(before)
    return False


def changed_subject(params: Params, found: Subject) -> Subject | NoStep:
    """The step with other settings, for a trial. A program is not run again: its model goes on with another optimizer."""
    if found.own is None:
        return subject(params)
    own, names, feed = found.own
    return replace(found, step=_own_step(own, names, feed, _recipe(params), params))


def _unused(params: Params) -> list[str]:
    given = [name for name in ("workers", "decode_us", "pin_memory", "channels_last") if getattr(params, name)]
    return [f"{', '.join(given)}: no effect on a program's own batch."] if given else []


_ROWS = (
    Row(
        r"ProfileLostError|[Pp]rofiler (is )?already|[Cc]an't disable Kineto profiler",
        "A program may not profile while it is being profiled: a second session empties the first.",
        "Leave torch.profiler out of the program.",
    ),
)
_CONVERTED = Row(
    r"expected .* same dtype|must have the same dtype|expected scalar type",
    "Two tensors have different dtypes, and this operation does not convert. Precision bf16 converts the model, not your batch.",
    "Convert the batch to bfloat16, or set precision to fp32.",
)


def fault_of(cause: Ended | BaseException, params: Params) -> Fault:
    """With what this page knows of it."""
    return explain_fault(cause, rows=(*_ROWS, _CONVERTED) if params.precision == "bf16" else _ROWS)


def compile_fault(error: Exception) -> Fault:
    """Of torch.compile on a host where it does not work."""
    return Fault(
        type(error).__name__,
        str(error)[:4000],
        explanation="torch.compile could not compile the model here. On a CPU it needs a C++ compiler and the headers of Python.",
        repair="Set compile to false, or install g++ and the Python headers on this machine.",
    )
