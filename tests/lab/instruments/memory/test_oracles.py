"""The track against independent routes: fake tensors, and the profiler's allocation events."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
import torch

from lab.instruments.memory import tracker
from lab.instruments.memory.timeline import peak, thinned, timeline
from lab.instruments.memory.unseen import profiled, unseen_by_operation
from lab.workloads.training_step import Recipe
from tests.lab.instruments.memory.memory_tracked import Tracked, tracked


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


def with_profiler(model: str, **size: Any) -> tuple[Tracked, list[tuple[int, int]]]:
    kept: list[Tracked] = []

    def work():
        kept.append(tracked(model, Recipe("adam"), steps=2, addresses=True, **size))
        return kept[0].track

    _, events = profiled(work)
    return kept[0], events


def check_against_the_profiler(model: str, tolerance_bytes: int, **size: Any) -> None:
    """Everything happens inside the session, parameters included, so both see the same memory."""
    run, events = with_profiler(model, **size)
    profiler_peak = max(accumulate(size for _, size in events))
    tracked_peak = peak(run.reading, thinned(run.reading)).bytes
    assert 0 <= profiler_peak - tracked_peak <= tolerance_bytes
    unseen = unseen_by_operation(run.track, events)
    assert profiler_peak - tracked_peak <= max(unseen.values(), default=0)


@pytest.mark.parametrize(
    ("model", "tolerance_bytes", "every"),
    [
        ("mlp", 64, 0),
        ("gpt", 64, 0),
        ("cnn", 9 * 64 * 64 * 4 + 600, 0),  # oneDNN reorders one 3 x 3 weight at a time
        ("gpt", 2 * 5056 + 64, 1),  # checkpoint keeps the random-number state of each segment
    ],
)
def test_against_the_profiler(model, tolerance_bytes, every):
    check_against_the_profiler(model, tolerance_bytes, every=every)


def test_a_planted_lost_storage_is_caught(monkeypatch):
    known = tracker.Ledger.born
    monkeypatch.setattr(
        tracker.Ledger, "born", lambda self, s, t, b: None if "div" in b.op_name else known(self, s, t, b)
    )
    with pytest.raises(AssertionError):
        check_against_the_profiler("mlp", 64)


def test_the_lstm_of_onednn_has_a_workspace_that_only_the_allocator_sees():
    run, events = with_profiler("lstm")
    unseen = unseen_by_operation(run.track, events)
    op, size = max(unseen.items(), key=lambda item: item[1])
    assert "rnn" in run.track.operations[op].name
    assert size > 10_000
