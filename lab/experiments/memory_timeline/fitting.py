"""Will it fit: the largest batch, and what sharding over several ranks leaves on each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lab.contract import ParamsError
from lab.experiments.memory_timeline.depth import extrapolated, phase_peaks
from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.tracking import Tracked, track
from lab.records.memory import CATEGORIES, LargestBatch, Shard

MOST_TRIES = 14
_SHARDED = {
    1: ("optimizer_state",),
    2: ("optimizer_state", "gradients"),
    3: ("optimizer_state", "gradients", "parameters"),
}
"""Rajbhandari et al. 2020, ZeRO."""


def largest_batch(params: Params, peak_bytes: int, goes_on: Callable[[int], bool]) -> LargestBatch | None:
    """The largest batch whose predicted peak fits on the card; None when the time ended before.

    ``peak_bytes`` with the present batch. The next try is where a line through the two nearest tries meets the card:
    a peak is the largest of several lines in the batch, so it is soon between two neighbours. ``goes_on`` is asked
    before each prediction with the number of tries.
    """
    tried, few = {params.batch: peak_bytes}, False
    order = [(params.batch, peak_bytes)]
    while len(order) < MOST_TRIES:
        batch = _next_batch(tried, params)
        if batch is None:
            break
        if not goes_on(len(order)):
            return None
        found = predicted_peak(params, batch)
        if found is None:
            return None
        few = few or found[1]
        tried[batch] = found[0]
        order.append((batch, found[0]))
    fits = [batch for batch, peak in tried.items() if peak <= params.card_bytes]
    best = max(fits, default=params.accumulate - 1 if params.accumulate > 1 else 0)
    if _next_batch(tried, params) is not None:
        return None
    return LargestBatch(best, tried.get(best, 0), tried.get(best + 1, 0), tuple(order), few)


def _next_batch(tried: dict[int, int], params: Params) -> int | None:
    """The batch to try next; None when two neighbours are on both sides of the card, or the limits are reached."""
    low_limit, high_limit = params.accumulate, 65_536
    below = max((b for b, peak in tried.items() if peak <= params.card_bytes), default=None)
    above = min((b for b, peak in tried.items() if peak > params.card_bytes), default=None)
    if below is None:
        return None if above == low_limit else max(low_limit, (above or 2) // 2 if len(tried) < 3 else low_limit)
    if above is None:
        return None if below == high_limit else min(high_limit, max(2 * below, _on_the_line(tried, params, below)))
    if above == below + 1:
        return None
    guess = _on_the_line(tried, params, below)
    if not below < guess < above:
        guess = (below + above) // 2
    return guess


def _on_the_line(tried: dict[int, int], params: Params, below: int) -> int:
    """Where the line through two tries next to the card meets it, alternating just below and just above."""
    near = sorted(tried, key=lambda batch: abs(tried[batch] - params.card_bytes))[:2]
    if len(near) < 2 or tried[near[0]] == tried[near[1]]:
        return 2 * below
    first, second = sorted(near)
    slope = (tried[second] - tried[first]) / (second - first)
    meets = first + int((params.card_bytes - tried[first]) / slope)
    return meets + 1 if meets in tried else meets


def predicted_peak(params: Params, batch: int) -> tuple[int, bool] | None:
    """(peak, whether from few blocks) with another batch."""
    try:
        changed = replace(params, batch=batch, predict=True)
    except ParamsError:
        return None
    if found := extrapolated(changed, least=6):
        return found.peak_bytes, True
    tracked = track(changed, fake=True)
    return None if tracked.fault else (tracked.peak_bytes, False)


def shards(params: Params, tracked: Tracked) -> tuple[Shard, ...]:
    """What each of ``params.ranks`` ranks holds at its own peak, for stages 1 to 3, each rank with the whole of ``batch``.

    The peak of every phase loses what is sharded; the largest that remains is the rank's. In stage 3 the largest
    module's parameters are gathered while it runs.
    """
    peaks = list(phase_peaks(tracked).values())
    ranks, weights = params.ranks, tracked.reading.categories(tracked.reading.instants[0][1])["parameters"]
    gathered = largest_block_bytes(tracked)
    found = []
    for stage, names in _SHARDED.items():
        places = [1 + CATEGORIES.index(name) for name in names]
        left = [p[0] - sum(p[at] - -(-p[at] // ranks) for at in places) for p in peaks]
        peak_bytes = max(left) + (gathered - -(-gathered // ranks) if stage == 3 else 0)
        sent = (3 if stage == 3 else 2) * weights * (ranks - 1) // ranks
        found.append(Shard(stage, ranks, peak_bytes, peak_bytes <= params.card_bytes, sent))
    return tuple(found)


def largest_block_bytes(tracked: Tracked) -> int:
    """Parameters of the largest block, or of the largest module that is none."""
    sizes: dict[str, int] = {}
    for storage in tracked.reading.storages:
        if storage.static == "parameters":
            parts = storage.name.split(".")
            number = next((at for at, part in enumerate(parts) if part.isdigit()), len(parts) - 2)
            name = ".".join(parts[: number + 1])
            sizes[name] = sizes.get(name, 0) + storage.bytes
    return max(sizes.values(), default=0)
