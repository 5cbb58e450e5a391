"""From priced blocks to a plan: found, run, and set beside every block, none and √n."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lab.experiments.memory_timeline.blocks import (
    NoPlanError,
    Priced,
    chain_of,
    flops_of_blocks,
    seconds_of_blocks,
)
from lab.experiments.memory_timeline.clock import step_seconds
from lab.experiments.memory_timeline.plan import Chain, tightest
from lab.experiments.memory_timeline.schema import Params, numbers_text
from lab.experiments.memory_timeline.settings import forward_only
from lab.experiments.memory_timeline.tracking import Tracked
from lab.records.memory_plan import CheckpointPlan, PlannedBlock, PlanRun

NONE, EVERY = {"checkpoint": "none"}, {"checkpoint": "every", "every": 1}
_FRONTIER = 24
"""Budgets between the least and the most for the curve."""
TrackOf = Callable[[Params, str], Tracked | None]
"""Track a setting; None when there is no time for it."""


def why_no_plan(params: Params) -> str:
    """What makes bytes of blocks have no one place in a step, or empty."""
    if forward_only(params):
        return "Nothing runs backward, so nothing is kept for it."
    if params.accumulate > 1:
        return "The plan is made for one forward and one backward in a step; set accumulate to 1."
    if params.retain_graph:
        return "A retained graph keeps what blocks saved beyond the step."
    if params.reentrant:
        return "The plan is made with the newer form of checkpointing."
    return ""


@dataclass
class _Way:
    name: str
    knobs: dict[str, Any]
    chosen: frozenset[int] | None
    tracked: Tracked


def checkpoint_plan(params: Params, track_of: TrackOf, fake: bool, clocks: bool) -> CheckpointPlan:
    """Price the blocks, search, run what was found. ``clocks``: time single steps. Raises NoPlanError."""
    if why := why_no_plan(params):
        raise NoPlanError(why)
    plain, every = (_tracked(params, knobs, track_of) for knobs in (NONE, EVERY))
    if not every.segments:
        raise NoPlanError("The model has no list of two or more blocks.")
    priced = flops_of_blocks(params) if fake else seconds_of_blocks(params)
    chain = chain_of(priced, plain, every)
    least, most = chain.least_bytes(), chain.peak_bytes(())
    budget = params.budget_bytes or (least + most) // 2
    chosen = _found(chain, max(budget, least))
    knobs = _knobs(priced, chosen)
    ways = [
        _Way("the plan", knobs, chosen, _tracked(params, knobs, track_of)),
        _Way("none", NONE, frozenset(), plain),
        _Way("every block", EVERY, frozenset(range(len(priced))), every),
    ]
    ways += _square_root(params, len(priced), track_of)
    seconds = _clocked(params, ways) if clocks and not fake else [None] * len(ways)
    return CheckpointPlan(
        budget, least, budget >= least, not fake, "FLOPs" if fake else "seconds", chain.cost(range(len(priced))),
        tuple(_block(p, block, i in chosen) for i, (p, block) in enumerate(zip(priced, chain.blocks, strict=True))),
        tuple(_row(way, s, seconds[1], chain, budget) for way, s in zip(ways, seconds, strict=True)),
        *_frontier(chain, least, most),
    )  # fmt: skip


def _tracked(params: Params, knobs: dict[str, Any], track_of: TrackOf) -> Tracked:
    found = track_of(replace(params, **knobs), "the checkpoint plan")
    if found is None:
        raise NoPlanError("It did not fit the time.")
    if found.fault:
        raise NoPlanError(f"With checkpointing the program fails: {found.fault.message}"[:300])
    return found


def _found(chain: Chain, budget_bytes: int) -> frozenset[int]:
    try:
        chosen = tightest(chain, budget_bytes)
    except OverflowError as error:
        raise NoPlanError(f"The search was given up: {error}.") from None
    assert chosen is not None  # the budget is not below the least
    return chosen


def _knobs(priced: list[Priced], chosen: frozenset[int]) -> dict[str, Any]:
    if not chosen:
        return NONE
    return {"checkpoint": "chosen", "blocks": numbers_text(priced[i].number for i in chosen)}


def _square_root(params: Params, blocks: int, track_of: TrackOf) -> list[_Way]:
    """Segments of √n blocks, where blocks can share a segment and there is time."""
    length = max(1, round(math.sqrt(blocks)))
    knobs = {"checkpoint": "every", "every": length}
    found = track_of(replace(params, **knobs), "segments of √n blocks") if length > 1 else None
    if found is None or found.fault or found.segments >= blocks:
        return []
    return [_Way(f"every {length} blocks (√n)", knobs, None, found)]


def _clocked(params: Params, ways: list[_Way]) -> list[float | None]:
    return [s.median for s in step_seconds([replace(params, **way.knobs) for way in ways])]


def _block(priced: Priced, block: Any, checkpointed: bool) -> PlannedBlock:
    return PlannedBlock(
        priced.number, priced.path, block.plain.kept_backward, block.checkpointed.kept_backward,
        block.checkpointed.needs_backward, priced.cost, checkpointed,
    )  # fmt: skip


def _row(way: _Way, step_s: float | None, plain_s: float | None, chain: Chain, budget_bytes: int) -> PlanRun:
    peak_bytes, cost = way.tracked.peak_bytes, None if way.chosen is None else chain.cost(way.chosen)
    return PlanRun(
        way.name,
        way.knobs,
        way.tracked.segments,
        None if way.chosen is None else chain.peak_bytes(way.chosen),
        peak_bytes,
        None if cost is None or plain_s is None else plain_s + cost,
        step_s,
        cost,
        peak_bytes <= budget_bytes,
    )


def _frontier(chain: Chain, least: int, most: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """(peak, cost) of the cheapest choices for budgets in between, each once."""
    found: dict[float, int] = {}
    for part in range(_FRONTIER + 1):
        chosen = _found(chain, least + (most - least) * part // _FRONTIER)
        found.setdefault(chain.cost(chosen), chain.peak_bytes(chosen))
    return tuple(found.values()), tuple(found)
