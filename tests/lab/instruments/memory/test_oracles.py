"""The track against an independent route: the same run on fake tensors."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lab.instruments.memory import tracker
from lab.instruments.memory.timeline import timeline
from lab.workloads.training_step import Recipe
from tests.lab.instruments.memory.memory_tracked import tracked


@pytest.fixture(scope="module", autouse=True)
def _one_thread_and_a_quick_collector() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def check_fake_equals_real(model: str, precision: Any = "fp32", **size: Any) -> None:
    real, fake = (
        tracked(model, Recipe("adam", precision=precision), steps=2, fake=fake, **size) for fake in (False, True)
    )
    assert real.track.operations == fake.track.operations
    curves = [timeline(run.reading, run.reading.instants) for run in (real, fake)]
    assert curves[0] == curves[1]  # every category at every operation
    assert fake.track.assumed_scalars == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16_autocast", "bf16"])
@pytest.mark.parametrize(("model", "every"), [("mlp", 0), ("mlp", 2), ("gpt", 0), ("gpt", 1)])
def test_fake_equals_real(model, every, precision):
    check_fake_equals_real(model, precision, every=every)


def test_fake_equals_real_for_convolutions():
    check_fake_equals_real("cnn")


def test_a_planted_blind_spot_on_fake_tensors_is_caught(monkeypatch):
    monkeypatch.setattr(tracker, "_PLAIN", (torch.Tensor, torch.nn.Parameter))
    monkeypatch.setattr(tracker, "storages_of", lambda tensor: iter(()))  # now only plain tensors have storages
    with pytest.raises(AssertionError):
        check_fake_equals_real("mlp")
