"""Distances against copies made by another route, frozen means bit for bit, held is checked by a step that moves."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from lab.contract import silent
from lab.experiments.fine_tuning import Params, explain, lessons, run
from lab.experiments.fine_tuning.readings import group
from lab.experiments.fine_tuning.tensors import backward_nodes, copied, gradient_of, held_ids, moved_rows, tensors_of
from lab.workloads.fine_tuned import RECIPES, LowRank, Settings, second_task, train, with_low_rank, with_new_head

SEEN = {
    "everything": (4.74, 10.7, 1.37, 0.957), "groups": (0.927, 7.79, 1.61, 0.941), "backbone frozen": (0, 8.24, 1.64, 0.887),
    "frozen and BatchNorm in eval": (0, 0, 2.15, 0.879), "optimizer before the new head": (6.62, 15.3, 0, 0.965),
    "optimizer before the new head, backbone frozen": (0, 8.24, 0, 0.359), "frozen after the optimizer was built": (0, 8.24, 1.64, 0.887),
}  # fmt: skip
POINTS = {
    "optimizer first, head second": "The optimizer holds the old head", "the same with a frozen backbone": "The optimizer holds the old head",
    "a frozen backbone": "frozen, and its running statistics moved", "frozen and in eval mode": "Frozen means frozen here",
    "a slower backbone": "The backbone moved by 0.927", "frozen midway": "Frozen weights moved by 0.83",
    "the first step of a low-rank update": "only one factor has a gradient", "merging a low-rank update": "only one factor has a gradient",
    "how much to freeze": "Far task, 16 rows", "what freezing saves": "frozen, and its running statistics moved",
}  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_distances_are_those_of_state_dicts_saved_before(recipe: str):
    result = run(Params(recipe=recipe), silent)
    ready, task = RECIPES[recipe](Settings()), second_task()
    before = {name: tensor.tolist() for name, tensor in ready.model.state_dict().items()}
    list(train(ready.model, ready.optimizer, task.train, 60, prepare=ready.prepare))
    rows = {row.name: row for row in result.moved}
    for name, tensor in ready.model.state_dict().items():
        if name in rows:
            flat = torch.tensor(before[name], dtype=torch.float64).flatten()
            by_hand = math.sqrt(
                sum((a - b) ** 2 for a, b in zip(flat.tolist(), tensor.double().flatten().tolist(), strict=True))
            )
            assert rows[name].distance == pytest.approx(by_hand, rel=1e-9, abs=1e-12)
    seen = (*(group(result, part) for part in ("backbone", "statistics", "head")), result.accuracy[-1].after)
    assert seen == pytest.approx(SEEN[recipe], rel=0.02)
    assert result.nodes == (22 if "frozen" not in recipe else 6)


def test_held_and_missing_are_what_a_step_of_ones_moves():
    for recipe, prepare in RECIPES.items():
        ready = prepare(Settings(optimizer="SGD", momentum=0.0))
        before = copied(tensors_of(ready.model))
        for p in ready.model.parameters():
            p.grad = torch.ones_like(p)
        ready.optimizer.step()
        rows = moved_rows(before, tensors_of(ready.model), held_ids([ready.optimizer]), {})
        assert {row.name for row in rows if row.distance} == {row.name for row in rows if row.held}, recipe


def test_a_foreign_tensor_and_a_typo_are_noticed():
    """Planted: the optimizer holds a tensor that the model lacks; freezing by a wrong name freezes nothing."""
    model = with_new_head()
    stray = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([*model.parameters(), stray], lr=1e-2)
    own = {id(p) for p in model.parameters()}
    assert [p is stray for g in optimizer.param_groups for p in g["params"] if id(p) not in own] == [True]
    before = copied(tensors_of(model))
    for name, p in model.named_parameters():
        p.requires_grad_("backbnoe" not in name)
    list(train(model, optimizer, second_task().train, 1))
    assert all(
        row.distance for row in moved_rows(before, tensors_of(model), held_ids([optimizer]), {}) if row.kind == "weight"
    )


def test_an_alias_would_hide_everything():
    model = with_new_head()
    alias = tensors_of(model)
    list(train(model, torch.optim.Adam(model.parameters(), lr=1e-2), second_task().train, 2))
    assert not any(row.distance for row in moved_rows(alias, tensors_of(model), set(), {}))


def test_decay_on_a_frozen_weight_is_the_closed_form():
    w = nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.AdamW([w], lr=0.1, weight_decay=0.5)
    (w * 0.0).sum().backward()
    w.requires_grad_(False)
    optimizer.zero_grad(set_to_none=False)
    assert gradient_of(w) == "zero"
    for _ in range(10):
        optimizer.step()
    assert w.item() == pytest.approx((1 - 0.1 * 0.5) ** 10, rel=1e-5)


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_a_low_rank_update(rank: int):
    result = run(Params(view="lora", rank=rank), silent).lora
    assert result is not None
    assert (result.update_rank, result.same_at_start, result.first_gradient_a) == (rank, True, 0.0)
    assert 0 < result.merge_gap < 1e-5
    assert result.trainable == 99 + 2 * 32 * rank + (8 + 32) * rank
    model = with_low_rank(rank)
    layer = model.backbone[3]
    assert isinstance(layer, LowRank)
    with torch.no_grad():
        layer.b.normal_()
    singular = torch.linalg.svdvals(layer.update().double())
    assert int((singular > 1e-6 * singular[0]).sum()) == rank


def test_nodes_are_counted_once():
    w = torch.ones(3, requires_grad=True)
    h = w * 2
    assert backward_nodes((h * h).sum()) == 4  # the leaf's, two products, the sum


@pytest.mark.parametrize("lesson", lessons, ids=lambda lesson: lesson.title)
def test_the_first_finding_of_a_lesson_is_its_point(lesson):
    assert POINTS[lesson.title] in explain(run(lesson.params, silent))[0].title


def test_generators_stay_as_they_were():
    torch.manual_seed(4)
    before = torch.get_rng_state()
    for view in ("moved", "midway", "lora"):
        run(Params(view=view), silent)
    assert torch.equal(before, torch.get_rng_state())
    assert copy.deepcopy(before).shape == before.shape
