"""The training that is never stopped, and the one that is loaded into a run built anew."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lab.experiments.checkpoint_resume.schema import LEAVE_OUT, Params
from lab.records.resume import PartOfFile, Resumed
from lab.workloads.resumable_training import TrainingRun, file_of

STEPS = 60
"""Micro-steps after the stop."""
_FOREIGN = (123, 321)
"""Seeds of torch's and Python's generators after a run was built anew: what was not saved is not there by chance."""


@dataclass(frozen=True)
class Curve:
    """What a training did after the stop."""

    losses: tuple[float, ...]
    rates: tuple[float, ...]
    evaluation: tuple[float, float]
    """Right at the stop: of the model, of the average."""
    weights: torch.Tensor
    """After the last step."""


def built(params: Params) -> TrainingRun:
    """A run at its start."""
    return TrainingRun(
        optimizer=params.optimizer, accumulate=params.accumulate, dropout=params.dropout, seed=params.seed,
        device=params.device,
    )  # fmt: skip


def stopped(params: Params) -> tuple[TrainingRun, tuple[float, ...]]:
    """A run after the steps before the stop, and their losses."""
    run = built(params)
    return run, tuple(run.step() for _ in range(params.stop_after))


def gone_on(run: TrainingRun) -> Curve:
    """The steps after the stop."""
    evaluation = run.evaluate()
    losses, rates = [], []
    for _ in range(STEPS):
        losses.append(run.step())
        rates.append(run.lr)
    return Curve(tuple(losses), tuple(rates), evaluation, run.weights())


def loaded(params: Params, load: Callable[[TrainingRun], Any]) -> TrainingRun:
    """A run built anew, under other generators, into which ``load`` puts what it has."""
    run = built(params)
    torch.manual_seed(_FOREIGN[0])
    random.seed(_FOREIGN[1])
    load(run)
    return run


def without(params: Params, file: bytes, choice: str) -> Curve:
    """Going on from ``file`` without the parts of ``choice``."""
    return gone_on(loaded(params, lambda run: run.load(file, LEAVE_OUT[choice])))


def compared(choice: str, straight: Curve, resumed: Curve, accumulate: int, stop_after: int) -> Resumed:
    """The difference in numbers. Losses are compared bit by bit."""
    gaps = gaps_of(straight, resumed)
    first = next((at for at, gap in enumerate(gaps) if gap != 0.0), None)
    due = min((-stop_after - 1) % accumulate, STEPS - 1)  # the micro-step that ends with the next optimizer step
    return Resumed(
        left_out=choice,
        first_different=first,
        first_gap=0.0 if first is None else gaps[first],
        mean_gap=sum(gaps) / len(gaps),
        weights_apart=float((resumed.weights - straight.weights).norm() / straight.weights.norm()),
        eval_gap_model=resumed.evaluation[0] - straight.evaluation[0],
        eval_gap_average=resumed.evaluation[1] - straight.evaluation[1],
        lr_due=straight.rates[due],
        lr=resumed.rates[due],
    )


def gaps_of(straight: Curve, resumed: Curve) -> tuple[float, ...]:
    """Absolute differences of the losses, step by step; a NaN on one side only is an infinite one."""
    return tuple(
        0.0 if a == b or (a != a and b != b) else abs(a - b) if a == a and b == b else float("inf")
        for a, b in zip(straight.losses, resumed.losses, strict=True)
    )


def parts_of(parts: dict[str, Any], left_out: tuple[str, ...]) -> tuple[PartOfFile, ...]:
    """What each part weighs in a file of its own."""
    return tuple(
        PartOfFile(
            name, len(file_of(part)), sum(storages(part).values()), sum(1 for _ in leaves(part)), name not in left_out
        )
        for name, part in parts.items()
    )


def leaves(value: Any) -> list[Any]:
    """Everything in nested containers that is none."""
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def storages(value: Any) -> dict[int, int]:
    """Address of each distinct storage in ``value`` to its bytes."""
    tensors = (leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor))
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t.numel()}


def same(a: Any, b: Any) -> bool:
    """Bit for bit, through nested containers."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        alike = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape
        return alike and torch.equal(a.detach().cpu(), b.detach().cpu())
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(same, a, b))
    return a == b
