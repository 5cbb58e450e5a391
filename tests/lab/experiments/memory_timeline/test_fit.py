"""The largest batch, shards, few blocks for many, parts in order, messages taken apart."""

from __future__ import annotations

import dataclasses

import pytest

from lab import wire
from lab.contract import silent
from lab.experiments import memory_timeline
from lab.experiments.memory_timeline import depth, fitting, measure, rulers
from lab.experiments.memory_timeline.oom_message import taken_apart
from lab.experiments.memory_timeline.schema import Params, Result
from lab.experiments.memory_timeline.tracking import track
from lab.instruments.memory.caching import MIB
from lab.records.memory import Seconds

SMALL = Params(model="mlp", layers=3, width=64, batch=16, optimizer="adam", steps=2)
GIB = 1 << 30


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch):
    monkeypatch.setattr(measure, "step_seconds", lambda settings: [Seconds(1.0, 1.0, 1.0, 3) for _ in settings])


@pytest.mark.parametrize("knobs", [{}, {"checkpoint": "every"}, {"precision": "bf16_autocast"}, {"checkpoint": "every", "every": 2}, {"model": "llama", "kv_heads": 1, "heads": 2}])  # fmt: skip
def test_few_blocks_say_the_peaks_of_all(knobs):
    params = Params(**{"layers": 24, "width": 64, "batch": 2, "seq": 32, "vocabulary": 100, "predict": True, **knobs})
    found = depth.extrapolated(params, least=6)
    whole = track(params, fake=True)
    assert found is not None
    assert found.peak_bytes == whole.peak_bytes
    assert found.parameters == whole.parameters
    assert {(p.step, p.phase): p.bytes for p in found.phase_peaks} == {
        k: v[0] for k, v in depth.phase_peaks(whole).items()
    }


def test_a_planted_block_of_another_width_is_not_followed():
    code = "model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(29)], nn.Linear(8, 9))\nbatch = torch.randn(4, 8)\n"
    assert depth.extrapolated(Params(model="own", code=code)) is None
    equal = code.replace("8, 9", "8, 8")
    found = depth.extrapolated(Params(model="own", code=equal))
    assert found is not None
    assert found.peak_bytes == track(Params(model="own", code=equal), fake=True).peak_bytes


@pytest.mark.parametrize(("layers", "card_bytes"), [(3, 1 << 20), (3, 1_500_000), (3, 2_777_777), (40, 1 << 20)])
def test_the_largest_batch_is_the_one_whose_neighbour_does_not_fit(layers, card_bytes):
    params = dataclasses.replace(SMALL, layers=layers, card_bytes=card_bytes)
    start = track(params, fake=True).peak_bytes
    found = fitting.largest_batch(params, start, lambda tries: True)
    assert found is not None
    peak = lambda batch: track(dataclasses.replace(params, batch=batch), fake=True).peak_bytes  # noqa: E731
    if found.batch:
        assert peak(found.batch) == found.peak_bytes <= card_bytes
    assert peak(found.batch + 1) == found.next_peak_bytes > card_bytes


def test_shards_divide_what_they_shard():
    params = dataclasses.replace(SMALL, ranks=4, batch=1)
    tracked = track(params, fake=True)
    whole = tracked.peak_bytes
    one, two, three = fitting.shards(params, tracked)
    weights = 4 * tracked.parameters
    assert whole > one.peak_bytes > two.peak_bytes > three.peak_bytes
    assert two.sent_bytes == 2 * weights * 3 // 4
    assert three.sent_bytes == 3 * weights * 3 // 4
    alone = fitting.shards(dataclasses.replace(params, ranks=1), tracked)
    assert {shard.peak_bytes for shard in alone} == {whole}


def test_what_is_ready_is_handed_over_first():
    seen: list[Result] = []
    params = Params(layers=1, width=32, seq=16, batch=4)
    result = memory_timeline.run(params, lambda fraction, line, part=None: seen.append(part) if part else None)
    assert len(seen) >= 3
    first = seen[0]
    assert not first.runs
    assert first.timeline == result.timeline
    for part in seen:
        assert wire.decode(Result, wire.loads(wire.dumps(part))) == part
        memory_timeline.explain(part)
    assert any(part.runs and not part.changes for part in seen)
    assert result.changes


def test_peak_only_tries_nothing_else():
    result = memory_timeline.run(dataclasses.replace(SMALL, peak_only=True), silent)
    assert not result.runs
    assert not result.changes
    assert result.peak.bytes == memory_timeline.run(SMALL, silent).peak.bytes


def test_what_does_not_fit_the_time_is_skipped_with_the_reason(monkeypatch):
    monkeypatch.setattr(measure, "LAB_S", 0.0)
    result = memory_timeline.run(SMALL, silent)
    assert result.timeline.index
    assert result.skipped
    assert all("would take about" in left.reason for left in result.skipped)


def test_three_rulers_hold_together():
    tracked = track(Params(layers=1, width=32, seq=16, batch=4), fake=True)
    for model in rulers.allocator_models(tracked):
        assert model.requested_peak_bytes == tracked.peak_bytes
        rows = zip(model.requested, model.allocated, model.reserved, strict=True)
        assert all(a <= b <= c for a, b, c in rows)
        assert model.needed_bytes >= model.allocated_peak_bytes
        below = rulers.replay(rulers.requests(tracked.book.ledger), model.expandable, model.needed_bytes - 2 * MIB)[0]
        assert below.failed
        assert below.failed.requested == model.failed_request_bytes


NEW = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.50 GiB is free. "
    "Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the allocated memory 18.00 GiB is allocated "
    "by PyTorch, and 4.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting ..."
)
OLD = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity; 7.50 GiB already allocated; "
    "11.00 MiB free; 7.51 GiB reserved in total by PyTorch)"
)


def test_a_message_is_taken_apart():
    found = taken_apart(NEW)
    assert found is not None
    numbers = {number.name: number.bytes / GIB for number in found.numbers}
    assert numbers == {
        "asked for": 2, "capacity": 24, "free on the device": 1.5, "in use by this process": 22.5,
        "allocated by PyTorch": 18, "reserved and not allocated": 4, "this process, not PyTorch's": 0.5, "neither free nor PyTorch's": 0.5,
    }  # fmt: skip
    assert "fragmentation" in found.verdict


def test_an_older_message_and_one_without_fragmentation():
    found = taken_apart(OLD)
    assert found is not None
    assert "fragmentation" not in found.verdict
    numbers = {number.name: number.bytes for number in found.numbers}
    assert numbers["reserved and not allocated"] == round(7.51 * GIB) - round(7.5 * GIB)
    full = taken_apart(NEW.replace("4.00 GiB is reserved", "0.10 GiB is reserved"))
    assert full is not None
    assert "fragmentation" not in full.verdict


@pytest.mark.parametrize("text", ["", "RuntimeError: shape mismatch", "Tried to allocate a lot"])
def test_other_texts_are_no_message(text):
    assert taken_apart(text) is None


def test_a_part_makes_no_finding_of_what_is_not_there_yet():
    """A card that is too small: nothing is said of changes before they have been tried."""
    seen: list[Result] = []
    params = dataclasses.replace(SMALL, card_bytes=1 << 20, batch=2000)
    result = memory_timeline.run(params, lambda fraction, line, part=None: seen.append(part) if part else None)
    early = [f for f in memory_timeline.explain(seen[0]) if "fit" in f.title]
    assert early
    assert not any(f.repair or "No change" in f.text for f in early)
    assert result.complete
    assert not any(part.complete for part in seen)
    assert all(change.step_ratio for change in result.changes if "batch" not in change.knobs)
