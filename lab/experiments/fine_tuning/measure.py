"""Fine-tune under a recipe and look at every tensor; or freeze midway, freeze a share, adapt by low rank, run a program."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F

from lab.contract import Report
from lab.experiments.fine_tuning.freezing import midway_rows, share_rows
from lab.experiments.fine_tuning.own_program import run_own
from lab.experiments.fine_tuning.schema import Params, Result, settings
from lab.experiments.fine_tuning.tensors import (
    Gradient,
    backward_nodes,
    copied,
    gradient_of,
    held_ids,
    moved_rows,
    state_bytes,
    tensors_of,
)
from lab.records.fine_tuning import Accuracy, LowRankRun
from lab.workloads.fine_tuned import (
    CLASSES_A,
    RECIPES,
    LowRank,
    Network,
    Prepared,
    accuracy,
    clouds,
    pretrained,
    second_task,
    train,
    with_low_rank,
    with_new_head,
)

RANKS = (1, 2, 4, 8, 32)
_HELD_BACK_A = 21


def run(params: Params, report: Report) -> Result:
    """The view that was asked for. Faults of a program do not raise: they are in ``fault``."""
    started = time.perf_counter()
    if params.view == "own":
        result = run_own(params, report)
    else:
        report(0.0, "training on the first task")
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            result = _VIEWS[params.view](params, report)
    return replace(result, seconds=time.perf_counter() - started)


def _moved(params: Params, report: Report) -> Result:
    ready = RECIPES[params.recipe](settings(params))
    task = second_task(far=params.far, count=params.rows)
    model, optimizer = ready.model, ready.optimizer
    before_a, before_b = _first_task(model), accuracy(model, task.held_back)
    before = copied(tensors_of(model))
    losses = tuple(
        train(model, optimizer, task.train, params.steps, prepare=ready.prepare, set_to_none=params.set_to_none)
    )
    gradients: dict[str, Gradient] = {name: gradient_of(p) for name, p in model.named_parameters()}
    held = held_ids([optimizer])
    own = {id(p) for p in model.parameters()}
    foreign = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in own]
    return Result(
        view="moved",
        recipe=params.recipe,
        moved=moved_rows(before, tensors_of(model), held, gradients),
        foreign=tuple(f"{list(p.shape)}" for p in foreign),
        foreign_count=sum(p.numel() for p in foreign),
        missing=tuple(name for name, p in model.named_parameters() if p.requires_grad and id(p) not in held),
        losses=losses,
        accuracy=(
            Accuracy("the first task, with its old head", before_a, _first_task(model)),
            Accuracy("the second task", before_b, accuracy(model, task.held_back)),
        ),
        trainable_count=sum(p.numel() for p in model.parameters() if p.requires_grad),
        held_count=sum(p.numel() for group in optimizer.param_groups for p in group["params"]),
        nodes=_nodes(ready),
        nodes_all=_nodes(RECIPES["everything"](settings(params))),
        state_bytes=state_bytes(optimizer),
        steps=params.steps,
    )  # fmt: skip


def _first_task(model: Network) -> float:
    """Accuracy on task A of this backbone under the old head."""
    whole = copy.deepcopy(model)
    whole.head = pretrained().head
    return accuracy(whole, clouds(_HELD_BACK_A, CLASSES_A))


def _nodes(ready: Prepared) -> int:
    inputs, labels = second_task().train
    return backward_nodes(F.cross_entropy(ready.model(inputs), labels))


def _midway(params: Params, report: Report) -> Result:
    return Result(view="midway", midway=tuple(midway_rows()), steps=20)


def _share(params: Params, report: Report) -> Result:
    result = Result(view="share", steps=params.steps)
    for fraction, line, rows in share_rows(params.steps, params.lr):
        result = replace(result, shares=(*result.shares, *rows))
        report(fraction, line, result)
    return result


def _lora(params: Params, report: Report) -> Result:
    runs = tuple(_adapted(params, rank) for rank in sorted({*RANKS, params.rank}))
    chosen = next(one for one in runs if one.rank == params.rank)
    return Result(view="lora", lora=chosen, ranks=runs, steps=params.steps)


def _adapted(params: Params, rank: int) -> LowRankRun:
    task = second_task(far=params.far, count=params.rows)
    model, plain = with_low_rank(rank).eval(), with_new_head().eval()
    second = model.backbone[3]
    assert isinstance(second, LowRank)
    with torch.no_grad():
        same = torch.equal(model(task.held_back[0]), plain(task.held_back[0]))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=1e-2)
    first = tuple(_first_gradients(model, second, task.train))
    for _ in train(model, optimizer, task.train, params.steps, prepare=lambda step: _to_eval(model)):
        pass
    model.eval()
    update = second.update()
    merged = copy.deepcopy(model)
    for at in (0, 3):
        layer = merged.backbone[at]
        assert isinstance(layer, LowRank)
        merged.backbone[at] = layer.merged()
    with torch.no_grad():
        gap = float((merged(task.held_back[0]) - model(task.held_back[0])).abs().max())
    return LowRankRun(
        rank=rank,
        trainable=sum(p.numel() for p in trained),
        update_rank=int(torch.linalg.matrix_rank(update.double(), rtol=1e-6)),
        merge_gap=gap,
        same_at_start=same,
        first_gradient_a=first[0],
        first_gradient_b=first[1],
        accuracy=accuracy(model, task.held_back),
    )


def _to_eval(model: Network) -> None:
    model.eval()


def _first_gradients(model: Network, layer: LowRank, data: tuple[torch.Tensor, torch.Tensor]) -> Iterator[float]:
    model.train()
    F.cross_entropy(model(data[0][:32]), data[1][:32]).backward()
    for factor in (layer.a, layer.b):
        assert factor.grad is not None
        yield float(factor.grad.norm())
    model.zero_grad()


_VIEWS = {"moved": _moved, "midway": _midway, "share": _share, "lora": _lora}
