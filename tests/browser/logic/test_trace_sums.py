"""What the trace timeline sums: self times inside a range, the level of memory at an instant."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right

import pytest

from tests.browser.logic.conftest import Call

BOXES = "components/op_profile/trace_timeline/boxes.js"
MEMORY = "components/op_profile/trace_timeline/memory.js"


def random_trace(rng: random.Random) -> dict:
    """Nested events of two lanes in order of their starts, as the profiler gives them."""
    columns: dict[str, list] = {
        name: [] for name in ("start_s", "duration_s", "lane", "depth", "kind", "name", "shapes")
    }

    def add(lane: int, depth: int, start: float, end: float) -> None:
        row = (start, end - start, lane, depth, "operator", rng.randrange(4), -1)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        at = start
        while depth < 3 and at < end and rng.random() < 0.8:
            begin = rng.uniform(at, end)
            stop = rng.uniform(begin, end)
            add(lane, depth + 1, begin, stop)
            at = stop

    for lane in range(2):
        for number in range(3):
            add(lane, 0, number + rng.random() * 0.2, number + 0.9)
    return {**columns, "names": ["a", "b", "c", "d"], "lanes": ["one", "two"], "parts": ["forward", "rest"]}


def oracle(trace: dict, start: float, end: float) -> tuple[float, dict[str, float]]:
    """The deepest event at each instant has the time: a sweep over all edges, by lane."""
    rows = list(zip(trace["start_s"], trace["duration_s"], trace["lane"], trace["depth"], trace["name"], strict=True))
    inside, by_name = 0.0, dict.fromkeys(trace["names"], 0.0)
    edges = sorted({start, end, *(e for s, d, *_ in rows for e in (s, s + d) if start < e < end)})
    for a, b in itertools.pairwise(edges):
        for lane in range(2):
            over = [(depth, name) for s, d, of, depth, name in rows if of == lane and s <= (a + b) / 2 < s + d]
            if over:
                inside += b - a
                by_name[trace["names"][max(over)[1]]] += b - a
    return inside, by_name


@pytest.mark.parametrize("seed", range(12))
def test_a_range_sums_to_self_times(call: Call, seed: int) -> None:
    rng = random.Random(seed)
    trace = random_trace(rng)
    start, end = sorted((rng.uniform(0, 3), rng.uniform(0, 3)))
    made = call(BOXES, "m.sumRange(m.boxesOf(v[0], 1), v[1], v[2])", trace, start, end)
    inside, by_name = oracle(trace, start, end)
    assert made["inside"] == pytest.approx(inside, abs=1e-9)
    got = {row["name"]: row["seconds"] for row in made["rows"]}
    assert {name: got.get(name, 0.0) for name in by_name} == pytest.approx(by_name, abs=1e-9)
    seconds = [row["seconds"] for row in made["rows"]]
    assert seconds == sorted(seconds, reverse=True)


def test_counting_totals_instead_would_be_noticed() -> None:
    trace = random_trace(random.Random(1))
    inside, by_name = oracle(trace, 0, 3)
    assert sum(by_name.values()) == pytest.approx(inside)
    assert sum(trace["duration_s"]) > inside * 1.1


def test_the_level_of_memory_is_that_of_the_last_change(call: Call) -> None:
    rng = random.Random(3)
    at = sorted(rng.random() for _ in range(50))
    levels = [rng.randrange(1000) for _ in at]
    code = "v[1].map(s => m.levelAt(v[0], s))"
    times = [-1.0, *at, *(rng.random() for _ in range(50)), 2.0]
    found = call(MEMORY, code, {"at": at, "bytes": levels}, times)
    assert found == [levels[i - 1] if (i := bisect_right(at, s)) else 0 for s in times]
    assert call(MEMORY, "m.levelAt({ at: [], bytes: [] }, 1)") is None
