"""The track shows the bytes of a bare run: its peak against the allocator's own events in a run without it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lab.instruments.memory import engine_sums, unseen
from lab.instruments.memory.timeline import Reading, read
from lab.instruments.memory.tracker import BEGIN, END, MemoryTrack, moment
from lab.torch_private import FakeMode
from lab.workloads.training_step import Training
from tests.lab.instruments.memory.memory_zoo import ZOO

NUMBERS = 64
"""Bytes of numbers that an operator wraps in tensors."""


@pytest.fixture(scope="module", autouse=True)
def _one_thread_and_a_quick_collector() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def bare(name: str) -> tuple[int, list[Any]]:
    """Peak of two steps in bytes, and the gradients."""
    kept: list[Training] = []

    def work() -> None:
        torch.manual_seed(0)
        kept.append(Training(*ZOO[name]()))
        moment(BEGIN)
        kept[0].run(2)
        moment(END)

    peak_bytes = unseen.peak_bytes(unseen.recorded(work))
    return peak_bytes, [p.grad for p in kept[0].task.model.parameters()]


def tracked(name: str, *, fake: bool = False) -> tuple[Reading, list[Any]]:
    kept: list[tuple[MemoryTrack, Training]] = []

    def work() -> None:
        torch.manual_seed(0)
        training = Training(*ZOO[name]())
        with MemoryTrack(
            {"": training.task.model}, training.optimizer, training.task.inputs, for_allocator=not fake
        ) as track:
            training.run(2)
        kept.append((track, training))

    if fake:
        with FakeMode():
            work()
    else:
        recording = unseen.recorded(work)
        unseen.add_unseen(kept[0][0], recording)
    track, training = kept[0]
    return read(track), [p.grad for p in training.task.model.parameters()]


def check(name: str) -> Reading:
    reading, gradients = tracked(name)
    peak_bytes, expected = bare(name)
    highest = max(reading.totals[event] for _, event in reading.instants)
    assert peak_bytes - NUMBERS <= highest <= peak_bytes
    assert highest >= 0.99 * peak_bytes
    for ours, theirs in zip(gradients, expected, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours.to_dense(), theirs.to_dense())  # adding in place changes no number
    return reading


@pytest.mark.parametrize("name", ZOO)
def test_the_peak_is_that_of_a_bare_run(name):
    check(name)


@pytest.mark.parametrize(
    "name", ["many_heads", "loop_over_time", "tied_layers", "residual_linears", "gradients are accumulated", "gru"]
)
def test_the_prediction_follows_the_same_rule(name):
    real, fake = tracked(name)[0], tracked(name, fake=True)[0]
    assert [o.name for o in real.operations] == [o.name for o in fake.operations]
    assert max(fake.totals) == max(real.totals)


def test_a_convolution_has_its_workspace_and_no_neighbour():
    reading = check("dense_connections")
    found = {s.op_name for s in reading.storages if s.static == "workspaces" and s.bytes > 20_000}
    assert found <= {"convolution", "convolution_backward"}
    assert found


@pytest.mark.parametrize("name", ["many_heads", "loop_over_time", "gathered", "sparse_gradient"])
def test_planted_sums_out_of_place_are_caught(name, monkeypatch):
    monkeypatch.setattr(engine_sums.EngineSums, "bare", lambda self, func, args, fresh: func)
    with pytest.raises(AssertionError):
        check(name)


def test_a_planted_sum_in_a_gradient_that_others_hold_is_caught(monkeypatch):
    """Without asking who holds it, the engine's sum would write into what another branch still needs."""
    x = torch.ones(64, requires_grad=True)

    def gradient(mode: Any) -> torch.Tensor:
        x.grad = None
        with mode:
            h, k = x * 3, x * 2
            other, sine = h * 6, k.sin()
            (torch.stack((other, sine, (h + k) * 5))).sum(0).backward(torch.ones(64))
        assert x.grad is not None
        return x.grad

    wanted = gradient(contextlib.nullcontext())
    assert torch.equal(gradient(MemoryTrack({})), wanted)
    monkeypatch.setattr(engine_sums, "engine_alone_holds", lambda args: True)
    assert not torch.equal(gradient(MemoryTrack({})), wanted)


def test_a_planted_double_count_is_caught(monkeypatch):
    monkeypatch.setattr(unseen, "_matched", lambda ledger, blocks: {})
    with pytest.raises(AssertionError):
        check("many_heads")
