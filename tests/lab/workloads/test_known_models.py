"""Known models have the published numbers of parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from lab.contract import ParamsError
from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.subject import build
from lab.torch_private import FakeMode
from lab.workloads.known_models import KNOWN

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama2-70b": 68_976_648_192,
    "vit-b-16": 86_567_656,
    "resnet-50": 25_557_032,
}


def count(params: Params) -> int:
    with FakeMode():
        return sum(p.numel() for p in build(params.resolved()).training.task.model.parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_number_of_parameters_is_the_published_one(name):
    assert set(PUBLISHED) == set(KNOWN)
    assert count(Params(known_model=name, batch=1)) == PUBLISHED[name]


def test_a_planted_other_vocabulary_is_another_number():
    assert count(replace(Params(known_model="gpt2").resolved(), vocabulary=50_304)) != PUBLISHED["gpt2"]


@pytest.mark.parametrize(
    "knobs", [{"model": "gpt"}, {"model": "gpt", "activation": "swiglu", "tied": True}, {"model": "llama"}]
)
def test_grouped_queries_have_fewer_keys_and_values(knobs):
    """Two of four keys and values are gone, with their biases where the network has any."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 1, "width": 64, "heads": 4, "batch": 2, "seq": 8}
    grouped = build(Params(**knobs, **sizes, kv_heads=2)).training.task
    full = build(Params(**knobs, **sizes)).training.task
    assert torch.isfinite(grouped.losses[0]())
    narrow, wide = (sum(p.numel() for p in task.model.parameters()) for task in (grouped, full))
    assert wide - narrow == 2 * (64 // 4 * 2) * (64 + (knobs["model"] == "gpt"))


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(ParamsError, match="does not divide into 5 heads"):
        Params(width=128, heads=5)
    with pytest.raises(ParamsError, match="kv_heads"):
        Params(width=128, heads=4, kv_heads=3)
    with pytest.raises(ParamsError, match="positions"):
        Params(seq=64, positions=32)
