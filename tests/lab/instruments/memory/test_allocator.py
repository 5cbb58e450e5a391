"""The allocator's lines on a snapshot made by hand; nothing here needs a GPU."""

from __future__ import annotations

import base64
import pickle
import zlib

import pytest

from lab.instruments.memory import allocator as memory_allocator
from lab.instruments.memory.allocator import AllocatorReading, packed, reconciled, requested_over_time

SNAPSHOT = {
    "device_traces": [
        [
            {"action": "segment_alloc", "size": 2 << 20},
            {"action": "alloc", "size": 1000},
            {"action": "alloc", "size": 500},
            {"action": "free_requested", "size": 1000},
            {"action": "free_completed", "size": 1000},
        ]
    ]
}


def test_the_four_lines_sum_to_what_is_reserved():
    reading = AllocatorReading(1500, 2048, 2 << 20, 3 << 20, "")
    lines = reconciled(1400, reading)
    assert list(lines.values()) == [1400, 100, 548, (2 << 20) - 2048]
    assert sum(lines.values()) == reading.reserved_bytes


def test_requested_bytes_over_time():
    assert requested_over_time(SNAPSHOT) == [1000, 1500, 500]


def test_a_snapshot_is_passed_on_as_the_viewer_reads_it(monkeypatch):
    assert pickle.loads(zlib.decompress(base64.b64decode(packed(SNAPSHOT)))) == SNAPSHOT
    monkeypatch.setattr(memory_allocator, "_SNAPSHOT_BYTES", 10)
    assert packed(SNAPSHOT) == ""


def test_a_planted_double_count_is_caught():
    with pytest.raises(AssertionError):
        assert sum(reconciled(1400 + 1, AllocatorReading(1500, 2048, 2 << 20, 0, "")).values()) == (2 << 20) + 1
