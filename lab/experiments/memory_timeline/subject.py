"""From the knobs to a training that can be run: built anew for every run, so that none inherits another's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from lab.contract import Fault
from lab.experiments.memory_timeline.schema import Params, block_numbers
from lab.experiments.memory_timeline.settings import forward_only
from lab.program import run as program
from lab.program.explain import explain_fault
from lab.program.own_model import OwnModelError, own_model
from lab.program.trained import model_of
from lab.torch_private import FakeMode
from lab.workloads import known_models, models
from lab.workloads.checkpointing import Segments, are_equal, block_lists, under_checkpoint
from lab.workloads.training_step import Loss, MicroBatches, Recipe, Training


@dataclass
class Subject:
    """One training, not begun."""

    training: Training
    segments: Segments
    """Checkpointed segments, filled as they run."""
    ran: program.Ran | None = None
    """The visitor's program."""


class SubjectError(Exception):
    """The visitor's program does not give a training; ``fault`` says why."""

    def __init__(self, fault: Fault, ran: program.Ran) -> None:
        super().__init__(fault.message)
        self.fault, self.ran = fault, ran


def build(params: Params, blocks: int | None = None) -> Subject:
    """Build on the default device, under ``program.torch_defaults``, with only so many ``blocks``. Raises SubjectError."""
    if params.precision == "bf16":  # parameters and data are made in it: a fake LSTM cannot be cast afterwards
        torch.set_default_dtype(torch.bfloat16)
    if params.model == "own":
        return _own(params, blocks)
    if blocks:
        params = replace(params, layers=blocks)
    kinds = models if params.model in ("mlp", "cnn", "gpt", "lstm") else known_models
    sizes = {"layers": params.layers, "width": params.width, "batch": params.batch, "seq": params.seq}
    made = kinds.build(params.model, **sizes, language=params.language)
    (x,), model = made.inputs, made.model
    segments = _checkpointed(model, params)
    parts = zip(x.tensor_split(params.accumulate), made.target.tensor_split(params.accumulate), strict=True)
    losses: list[Loss] = [lambda x=x, y=y: made.criterion(model(x), y) for x, y in parts]
    task = MicroBatches(model, {"x": x, "target": made.target}, losses)
    return Subject(Training(task, recipe(params)), segments)


def recipe(params: Params) -> Recipe:
    """The knobs that say how a step is done."""
    names = Recipe.__dataclass_fields__
    return Recipe(**{name: getattr(params, name) for name in names})


def block_count(params: Params) -> int:
    """How many equal blocks the model has; 0 where it has none, or they differ. Raises SubjectError."""
    if params.model != "own":
        return params.layers if params.model in ("gpt", "llama", "vit", "mlp", "cnn") else 0
    with program.torch_defaults(params.seed, params.device), FakeMode():
        made = _own(params, None).training.task.model
        chain = _one_list(made)
        return len(list(chain.children())) if chain is not None and are_equal(*chain.children()) else 0


def _own(params: Params, blocks: int | None) -> Subject:
    ran = program.run_typed(params, share=0.5)
    if ran.ended:
        raise SubjectError(explain_fault(ran.ended), ran)
    try:
        return _own_training(params, ran, blocks)
    except Exception as error:  # noqa: BLE001 - classes of the program may raise anything when they are looked at
        raise SubjectError(explain_fault(error), ran) from None


def _own_training(params: Params, ran: program.Ran, blocks: int | None) -> Subject:
    names = dict(ran.namespace)
    whole = model_of(ran)
    if blocks and (chain := _one_list(whole.model)) is not None:
        del chain[blocks:]
    model, segments = whole.model, _checkpointed(whole.model, params)
    names["model"] = model
    if isinstance(names.get("loss"), (torch.Tensor, float)):  # what a training loop left over
        del names["loss"]
    if not any(p.requires_grad or forward_only(params) for p in model.parameters()):
        raise OwnModelError("The model has no parameter that requires gradients: there is nothing to train.")
    parts = _chunks(whole.batch, params.accumulate)
    if whole.loss_of:
        losses = [whole.loss_of(model, part) for part in parts]
    else:
        losses = [own_model({**names, "batch": part}).loss for part in parts]
    inputs = {f"batch[{number}]": tensor for number, tensor in enumerate(_tensors(whole.batch))}
    return Subject(Training(MicroBatches(model, inputs, losses), recipe(params)), segments, ran)


def _one_list(model: nn.Module) -> nn.Sequential | nn.ModuleList | None:
    """The list of blocks of a model that has one."""
    lists = block_lists(model)
    return lists[0] if len(lists) == 1 and isinstance(lists[0], (nn.Sequential, nn.ModuleList)) else None


def _checkpointed(model: nn.Module, params: Params) -> Segments:
    if params.checkpoint == "none":
        return Segments()
    chosen = block_numbers(params.blocks)
    return under_checkpoint(model, params.checkpoint, params.every, params.reentrant, chosen)  # pyright: ignore[reportArgumentType]


def _tensors(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch]
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _chunks(batch: Any, count: int) -> list[Any]:
    """The batch in ``count`` parts along the first dimension. Raises OwnModelError when it does not divide."""
    if count == 1:
        return [batch]
    sizes = {len(t) for t in _tensors(batch) if t.ndim}
    if len(sizes) != 1 or min(sizes) < count:
        raise OwnModelError(
            f"accumulate = {count} needs tensors with the same first dimension of at least {count}; batch has {sizes}."
        )
    pieces = [t.tensor_split(count) for t in _tensors(batch)]
    return [_rebuilt(batch, iter([piece[i] for piece in pieces])) for i in range(count)]


def _rebuilt(batch: Any, tensors: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return next(tensors)
    if isinstance(batch, Mapping):
        return {name: _rebuilt(part, tensors) for name, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        make = getattr(batch, "_make", list if isinstance(batch, list) else tuple)  # a named tuple has its own
        return make([_rebuilt(part, tensors) for part in batch])
    return batch
