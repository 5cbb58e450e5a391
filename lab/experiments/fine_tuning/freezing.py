"""Frozen in the middle of a training, and how much to freeze for how many rows of a near or far task."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from lab.experiments.fine_tuning.tensors import copied
from lab.records.fine_tuning import FrozenMidway, Share
from lab.workloads.fine_tuned import (
    CLASSES_A,
    Network,
    accuracy,
    clouds,
    pretrained,
    second_task,
    train,
    with_new_head,
)

_STEPS_BEFORE, _STEPS_AFTER = 10, 20
_SEEDS = (9, 10, 11)
FROZEN = {
    "nothing": (), "first block": (0, 1), "both blocks": (0, 1, 3, 4), "gradually unfrozen": (),
}  # fmt: skip
"""Words -> the children of the backbone that keep their weights."""


def midway_rows() -> Iterator[FrozenMidway]:
    """SGD with momentum and AdamW, with decay and without, gradients removed or zeroed."""
    for optimizer in ("SGD", "AdamW"):
        for decay in (0.0, 0.01):
            for set_to_none in (True, False):
                yield FrozenMidway(optimizer, decay, set_to_none, _midway(optimizer, decay, set_to_none))


def _midway(kind: str, decay: float, set_to_none: bool) -> float:
    model, (inputs, labels) = with_new_head(), second_task().train
    if kind == "SGD":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), lr=0.05, momentum=0.9, weight_decay=decay
        )
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=decay)
    for _ in train(model, optimizer, (inputs, labels), _STEPS_BEFORE):
        pass
    model.backbone.requires_grad_(False)
    before = copied(dict(model.backbone.named_parameters()))
    optimizer.zero_grad(set_to_none=set_to_none)
    own = torch.Generator().manual_seed(1)
    model.train()
    for _ in range(_STEPS_AFTER):
        chosen = torch.randint(0, 256, (32,), generator=own)
        F.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
    gaps = [(p.detach().double() - before[name].double()).norm() for name, p in model.backbone.named_parameters()]
    return float(torch.stack(gaps).norm())


def share_rows(steps: int, lr: float) -> Iterator[tuple[float, str, list[Share]]]:
    """(share of the work done, one line, rows): every amount of freezing for a near and a far task, little and much data."""
    cases = [(far, count) for far in (False, True) for count in (16, 256)]
    for at, (far, count) in enumerate(cases):
        task, data = "far" if far else "near", f"{count} rows"
        rows = [_share(frozen, far, count, steps, lr) for frozen in FROZEN]
        yield (at + 1) / len(cases), f"{task} task, {data}", rows


def _share(frozen: str, far: bool, count: int, steps: int, lr: float) -> Share:
    found, forgotten, model = [], [], with_new_head()
    task = second_task(far=far, count=count)
    whole = sum(p.numel() for p in model.parameters())
    old_task = clouds(21, CLASSES_A)
    known = accuracy(pretrained(), old_task)
    for seed in _SEEDS:
        model = with_new_head(seed)
        for at in FROZEN[frozen]:
            model.backbone[at].requires_grad_(False)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        prepare = _unfreezing(model, steps) if frozen == "gradually unfrozen" else lambda step: None
        for _ in train(model, optimizer, task.train, steps, prepare=prepare, seed=seed):
            pass
        found.append(accuracy(model, task.held_back))
        old = copy.deepcopy(model)
        old.head = pretrained().head
        forgotten.append(known - accuracy(old, old_task))
    share = sum(p.numel() for at in FROZEN[frozen] for p in model.backbone[at].parameters()) / whole
    mean = sum(found) / len(found)
    return Share(
        frozen, share, "far" if far else "near", f"{count} rows", mean, min(found), max(found), sum(forgotten) / len(forgotten)
    )  # fmt: skip


def _unfreezing(model: Network, steps: int):
    """The head alone, after a third the second block as well, after two thirds everything."""
    model.backbone.requires_grad_(False)

    def prepare(step: int) -> None:
        if step == steps // 3:
            for at in (3, 4):
                model.backbone[at].requires_grad_(True)
        if step == 2 * steps // 3:
            model.backbone.requires_grad_(True)

    return prepare
