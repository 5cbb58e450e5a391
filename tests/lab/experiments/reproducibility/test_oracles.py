"""A planted ulp, a planted permutation, a planted draw: each is found where it was put; runs that are the same are the same."""

from __future__ import annotations

import random

import pytest
import torch

from lab.contract import silent
from lab.experiments.reproducibility import Params, explain, run
from lab.experiments.reproducibility.host import _batches_that_differ, sources
from lab.experiments.reproducibility.recording import Recorder, Recording, bits_of, compared
from lab.workloads.repeatable import CHANGES, built, circumstances


def recorded(planted: int = -1, steps: int = 2) -> Recording:
    """A training; one element of the result of operation ``planted`` is moved to the next number in the recording."""
    recorder = Recorder(tape=True)
    with torch.random.fork_rng(), recorder:
        training = built("nothing", 0, recorder.told)
        for at in range(steps):
            training.step(at)
    recording = recorder.recording
    if planted >= 0:
        row = recording.rows[planted]
        values = [value.clone() for value in row.values]
        flat = values[0].view(-1)
        flat[0] = torch.nextafter(flat[0], torch.tensor(9.0, dtype=flat.dtype))
        recording.rows[planted] = type(row)(
            row.place, row.line, row.op, row.shapes, bits_of(values), tuple(values), row.dtypes
        )
    return recording


def test_the_same_run_twice_is_the_same():
    first, timeline, same = compared(recorded(), recorded())
    assert first is None
    assert timeline.equal == (True,)
    assert same == timeline.count[0] == len(recorded().rows)


def test_a_planted_ulp_is_found_at_its_operation():
    whole = recorded()
    floating = [at for at, row in enumerate(whole.rows) if row.values[0].is_floating_point() and row.values[0].numel()]
    for planted in random.Random(0).sample(floating, 6):
        first, _, same = compared(whole, recorded(planted))
        assert first is not None
        assert (first.index, first.kind, first.op) == (planted, "bits", whole.rows[planted].op)
        assert same == len(whole.rows) - 1
        assert 0 < first.gap < 1e-5


def test_a_permutation_is_found_where_a_sum_as_hash_would_miss_it():
    x = torch.arange(6.0)
    assert bits_of([x]) != bits_of([x.flip(0)])
    assert float(x.sum()) == float(x.flip(0).sum())
    grid = torch.arange(12.0).reshape(3, 4)
    assert bits_of([grid]) == bits_of([grid.t().contiguous().t()])  # another layout, the same numbers in order
    nan = torch.tensor([float("nan"), 1.0])
    assert bits_of([nan]) == bits_of([nan.clone()])


def test_an_operation_more_is_no_difference_of_all_that_follow():
    def program(extra: bool) -> Recording:
        recorder = Recorder()
        with recorder:
            x = torch.ones(3)
            if extra:
                x.exp()
            (x * 2).sum()
        return recorder.recording

    first, _, same = compared(program(False), program(True))
    assert first is not None
    assert (first.kind, first.op) == ("extra op", "exp")
    assert same == len(program(False).rows)
    assert compared(program(True), program(False))[0].kind == "missing op"  # type: ignore[union-attr]


@pytest.mark.parametrize("change", CHANGES)
def test_what_each_change_does_here(change: str):
    result = run(Params(change=change, steps=4), silent)
    gap = result.growth[-1].gap
    if change in ("nothing", "deterministic", "checkpoint"):
        assert gap == 0.0
        assert result.first is None or result.first.kind != "bits"
    elif change in ("seed", "order", "batch", "extra draw", "autocast"):
        assert gap > 1e-4
        assert result.first is not None
        assert result.first.kind == "bits"
    elif change in ("dtype", "oneDNN", "one ulp", "accumulation"):
        assert 0 < gap < 1e-4
    assert explain(result)


def test_an_extra_draw_shows_from_its_step_on_and_in_the_tape():
    result = run(Params(change="extra draw", steps=5), silent)
    assert [row.gap == 0.0 for row in result.growth] == [True, True, True, False, False]
    assert result.first is not None
    assert (result.first.place, result.first.op) == ("step 3 forward", "bernoulli")
    assert [draw.op for draw in result.draws if draw.in_b and not draw.in_a] == ["rand"]


def test_circumstances_are_put_back():
    torch.manual_seed(2)
    before = (
        torch.get_rng_state(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
    )
    for change in ("threads", "deterministic", "oneDNN"):
        with pytest.raises(KeyError), circumstances(change):
            raise KeyError
    run(Params(change="oneDNN", steps=2), silent)
    after = (
        torch.get_rng_state(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
    )
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_one_thread_gives_one_result_and_a_batch_that_is_the_whole_agrees():
    result = run(Params(view="host", repeats=3), silent)
    assert all(row.distinct >= 1 for row in result.sensitive)
    assert all(row.distinct_flag in (1, -1) for row in result.sensitive)
    assert list(_batches_that_differ(torch.relu)) == []
    assert 1 in list(_batches_that_differ(lambda x: x + len(x)))  # planted: the batch size goes into the result
    assert "put_ with duplicates" in [row.op for row in result.refused]


def test_levels_are_what_two_trainings_say():
    same = run(Params(view="levels", change="nothing"), silent)
    assert [row.holds for row in same.levels] == [True, True, True]
    other = run(Params(view="levels", change="one ulp", steps=4), silent)
    assert [row.holds for row in other.levels] == [False, True, True]
    assert other.levels[1].yardstick > 0


def test_sources_name_this_release():
    values = {source.name: source.value for source in sources(seeded=True)}
    assert values["torch"] == torch.__version__
    assert values["threads"] == str(torch.get_num_threads())
