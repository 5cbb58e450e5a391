"""Byte counts against closed forms, computed by hand, to the byte."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch

from lab.instruments.memory import hooks, ledger
from lab.instruments.memory.saved import saved_tensors
from lab.instruments.memory.timeline import lives, peak, read, thinned, timeline
from lab.instruments.memory.tracker import CapExceededError, MemoryTrack
from lab.workloads.models import CLASSES, VOCABULARY
from lab.workloads.training_step import Recipe
from tests.lab.instruments.memory.memory_tracked import built, tracked

ADAM = Recipe("adam")
SGD = Recipe("sgd")


@pytest.fixture(scope="module", autouse=True)
def _one_thread_and_a_quick_collector() -> Iterator[None]:
    """Every track collects garbage first; what the imports made need not be looked through each time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def mlp_parameters(layers: int, width: int) -> int:
    return 4 * (layers * (width * width + width) + width * CLASSES + CLASSES)


def check_mlp_with_adam() -> None:
    layers, width, batch = 2, 64, 32
    run = tracked("mlp", ADAM, layers=layers, width=width, batch=batch)
    parameters, tensors = mlp_parameters(layers, width), 2 * layers + 2
    inputs = batch * width * 4 + batch * 8
    # each ReLU keeps its output; log-softmax its output; nll_loss one number, the total weight
    saved = layers * batch * width * 4 + batch * CLASSES * 4 + 4
    assert run.at("forward") == {"parameters": parameters, "inputs": inputs, "saved": saved, "held": 4}
    after_backward = {"parameters": parameters, "inputs": inputs, "gradients": parameters, "held": 4}
    assert run.at("backward") == after_backward
    state = 2 * parameters + 4 * tensors  # two moments, and a step counter of 4 bytes for each parameter
    assert run.at("optimizer") == after_backward | {"optimizer_state": state}
    highest = peak(run.reading, thinned(run.reading))
    # square root and quotient of the last weight of its size, beside the quotient of the bias before it
    assert highest.bytes == 2 * parameters + inputs + state + 2 * width * width * 4 + width * 4 + 4
    assert highest.phase == "optimizer"


def test_mlp_with_adam():
    check_mlp_with_adam()


@pytest.mark.parametrize("every", [0, 1, 3])
def test_a_gpt_block_keeps_16_units_or_its_input(every):
    batch, seq, width, layers = 2, 32, 64, 3
    run = tracked("gpt", SGD, batch=batch, seq=seq, width=width, layers=layers, every=every)
    unit, rows, heads = batch * seq * width * 4, batch * seq * 4, 1
    # norm in and out 2, qkv 3, attention out 1, norm in and out 2, fc1 4, gelu 4; mean and 1/std of two norms; logsumexp
    block = 16 * unit + 4 * rows + heads * rows
    segments = {0: 0, 1: layers, 3: 1}[every]
    inside = segments * unit if every else layers * block
    # last norm in and out with statistics, log-softmax, its total weight; indices of the positions; the flattened target
    outside = 2 * unit + 2 * rows + rows * VOCABULARY + 4 + 8 * seq + 8 * batch * seq
    assert run.at("forward")["saved"] == inside + outside
    assert run.at("forward")["parameters"] == sum(4 * p.numel() for p in run.training.task.model.parameters())
    recomputed = max(state for state in timeline(run.reading, run.reading.instants).recomputed)
    assert bool(recomputed) == bool(every)


def test_autocast_keeps_half_size_copies():
    layers, width = 3, 64
    run = tracked("mlp", Recipe("sgd", precision="bf16_autocast"), layers=layers, width=width)
    casts = timeline(run.reading, run.reading.instants).weight_casts
    assert max(casts) == mlp_parameters(layers, width) // 2  # every parameter has a copy in the cache
    # at its end autocast drops them; what backward needs stays: not the first weight, and no bias
    assert run.at("forward")["weight_casts"] == 2 * ((layers - 1) * width * width + width * CLASSES)


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 0), ("momentum", 1), ("adam", 2), ("adamw", 2)])
def test_optimizer_state(optimizer, copies):
    run = tracked("mlp", Recipe(optimizer))
    counters = 4 * 6 if copies == 2 else 0
    assert run.at("optimizer").get("optimizer_state", 0) == copies * mlp_parameters(2, 64) + counters


@pytest.mark.parametrize(("impl", "extra"), [("forloop", None), ("foreach", "whole"), ("fused", 0)])
def test_optimizer_temporaries(impl, extra):
    run = tracked("mlp", Recipe("adam", impl), steps=2)
    rows = timeline(run.reading, run.reading.instants)
    highest = max(t for t, phase in zip(rows.temporaries, rows.phase, strict=True) if phase == "optimizer")
    wanted = {None: 2 * 64 * 64 * 4 + 64 * 4, "whole": mlp_parameters(2, 64), 0: 0}[extra]
    assert highest == wanted


@pytest.mark.parametrize(
    ("leak", "growth"),
    [("none", 0), ("item", 0), ("loss", 4), ("loss_without_backward", 2 * 4 * 64 * 4 + 4 * CLASSES * 4 + 4 + 4)],
)
def test_what_a_step_leaves_behind(leak, growth):
    run = tracked("mlp", Recipe("sgd", leak=leak), steps=4)
    last = "forward" if leak == "loss_without_backward" else "optimizer"
    totals = [sum(run.at(last, number).values()) for number in range(1, 4)]
    assert [b - a for a, b in pairwise(totals)] == [growth, growth]


def test_accumulation_halves_what_is_saved():
    one, two = (tracked("mlp", SGD, batch=32, chunks=n).at("forward")["saved"] for n in (1, 2))
    assert 2 * (two - 4) == one - 4  # all but the total weight


def test_an_inference_run_ends_where_it_began():
    for mode in ("no_grad", "inference_mode"):
        run = tracked("gpt", Recipe(mode=mode), steps=2)
        assert run.reading.categories(len(run.reading.totals) - 1) == run.reading.categories(run.reading.instants[0][1])


def test_a_training_run_leaves_gradients_and_state():
    run = tracked("gpt", ADAM, steps=2)
    first, last = run.reading.categories(run.reading.instants[0][1]), run.reading.categories(-1)
    new = {name: last[name] - first[name] for name in first if last[name] != first[name]}
    parameters = first["parameters"]
    tensors = len(list(run.training.task.model.parameters()))
    assert new == {"gradients": parameters, "optimizer_state": 2 * parameters + 4 * tensors}


def check_parts_sum_to_the_whole(model: str = "gpt", **size: Any) -> None:
    run = tracked(model, ADAM, steps=2, **size)
    book = run.track.ledger
    alive = 0
    for event, total in zip(book.events, run.reading.totals, strict=True):  # allocated minus freed is live
        if event.kind == "born":
            alive += event.value
        elif event.kind == "died":
            alive -= book.storages[event.storage].bytes
        assert alive == total
    rows = thinned(run.reading, 200)
    table, (alive_in_rows, storages) = timeline(run.reading, rows), lives(run.reading, rows)
    for row, total in enumerate(table.totals()):
        spans = zip(alive_in_rows.first, alive_in_rows.end, alive_in_rows.bytes, strict=True)
        assert sum(size for first, end, size in spans if first <= row < end) == total
    assert max(table.totals()) == max(run.reading.totals) == peak(run.reading, rows).bytes
    assert len(storages.op) == max(alive_in_rows.storage) + 1


@pytest.mark.parametrize(("model", "every"), [("gpt", 0), ("gpt", 1), ("cnn", 0), ("lstm", 0)])
def test_parts_sum_to_the_whole(model, every):
    check_parts_sum_to_the_whole(model, every=every)


def test_views_cost_nothing():
    base = torch.randn(100, 100)

    def sizes(work) -> list[int]:
        track = MemoryTrack({}, None, {"base": base})
        with track:
            work()
        return [storage.bytes for storage in track.ledger.storages[1:]]

    assert sizes(lambda: base.view(-1)[10:20].t()) == []
    assert sizes(lambda: base.add_(1)) == []
    assert sizes(lambda: base[:1].expand(1000, 100)) == []
    assert sizes(lambda: base[:1].expand(1000, 100).contiguous()) == [400_000]


def test_a_sparse_tensor_has_two_storages():
    track = MemoryTrack({}, None, {})
    with track, torch.sparse.check_sparse_tensor_invariants(enable=True):
        sparse = torch.eye(4).to_sparse()
    parts = (sparse.indices(), sparse.values())
    assert track.ledger.live_bytes == sum(part.untyped_storage().nbytes() for part in parts)


def test_tied_weights_count_once():
    linear = torch.nn.Linear(8, 8)
    twice = torch.nn.ModuleList([linear, torch.nn.Linear(8, 8)])
    twice[1].weight = linear.weight
    track = MemoryTrack({"": twice})
    with track:
        pass
    assert track.ledger.live_bytes == 4 * (64 + 8 + 8)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_recomputes_with_the_same_gradients(reentrant):
    runs = [tracked("gpt", SGD, every=every, reentrant=reentrant) for every in (0, 1)]
    phases = [{operation.phase for operation in run.track.operations} for run in runs]
    assert phases[1] - phases[0] == {"recompute"}
    plain, checkpointed = (list(run.training.task.model.parameters()) for run in runs)
    for a, b in zip(plain, checkpointed, strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.equal(a.grad, b.grad)


def test_saved_slots_are_those_that_autograd_names():
    task = built("mlp", layers=1)
    track = MemoryTrack({"": task.model}, None, task.inputs)
    with track:
        loss = task.losses[0]()
        rows = saved_tensors(loss, track)
    found = {(row.operation, row.slot, row.module, row.holds): row.bytes for row in rows}
    assert found["ReluBackward0", "result", "blocks.0.1", "saved"] == 4 * 64 * 4
    assert found["LogSoftmaxBackward0", "result", "loss", "saved"] == 4 * CLASSES * 4
    assert found["AddmmBackward0", "mat1", "blocks.0.0", "inputs"] == 4 * 64 * 4
    assert found["AddmmBackward0", "mat2", "head", "parameters"] == 64 * CLASSES * 4
    distinct = {row.storage: row.storage_bytes for row in rows if row.holds == "saved"}
    assert sum(size for size in distinct.values() if size) == 4 * 64 * 4 + 4 * CLASSES * 4 + 4


def test_an_overwritten_saved_tensor_is_still_an_error():
    x = torch.ones(3, requires_grad=True)
    with MemoryTrack({}):
        y = torch.sigmoid(x)
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_cap_stops_at_the_first_request_beyond_it():
    free = tracked("mlp", SGD)
    cap = peak(free.reading, thinned(free.reading)).bytes - 1
    with pytest.raises(CapExceededError) as caught:
        tracked("mlp", SGD, cap_bytes=cap)
    assert caught.value.alive_bytes + caught.value.storage.bytes == cap + 1
    tracked("mlp", SGD, cap_bytes=cap + 1)


def test_two_trackers_in_two_threads_do_not_hear_each_other():
    alone = tracked("mlp", ADAM, steps=2).reading.totals
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(tracked("mlp", ADAM, steps=2).reading.totals)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 3


def check_saved_ends_with_backward() -> None:
    x = torch.ones(100, requires_grad=True)
    track = MemoryTrack({}, None, {"x": x})
    with track:
        y = torch.sigmoid(x)
        y.sum().backward()
    table = timeline(reading := read(track), reading.instants)
    assert table.saved[table.op.index("sigmoid")] == 400
    assert reading.categories(-1)["saved"] == 0
    assert reading.categories(-1)["held"] == y.nbytes + x.nbytes  # x.grad: no module announced x


def test_saved_ends_with_backward():
    check_saved_ends_with_backward()


def test_a_planted_wrong_category_is_caught(monkeypatch):
    monkeypatch.setattr(hooks.Hooks, "_gradient_is_there", lambda self, parameter: None)
    with pytest.raises(AssertionError):
        check_mlp_with_adam()


def test_a_planted_late_release_is_caught(monkeypatch):
    monkeypatch.setattr(hooks.Held, "__del__", lambda self: None)
    with pytest.raises(AssertionError):
        check_saved_ends_with_backward()


def test_a_planted_missed_death_is_caught(monkeypatch):
    monkeypatch.setattr(ledger.Ledger, "_died", lambda self, key, number, reference: self._known.pop(key, None))
    with pytest.raises(AssertionError):
        check_mlp_with_adam()


def test_a_planted_hole_in_the_sum_is_caught(monkeypatch):
    from lab.instruments.memory import categories

    monkeypatch.setattr("lab.instruments.memory.timeline.spans", lambda *a: categories.spans(*a)[:-1])
    with pytest.raises(AssertionError):
        check_parts_sum_to_the_whole()


def test_records_are_plain_data():
    run = tracked("mlp", ADAM)
    rows = thinned(run.reading)
    assert dataclasses.asdict(peak(run.reading, rows))["categories"]["parameters"] == mlp_parameters(2, 64)
    assert read(run.track, "cuda").totals[-1] == 0
