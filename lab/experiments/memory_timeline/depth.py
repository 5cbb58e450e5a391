"""A deep model of equal blocks predicted from few of them: each block adds the same.

Every tensor of a block is there once for each block, so the bytes alive at the same place of the step are affine in the
number of blocks, and the peak of a phase is the largest of such lines. Three depths in a row tell whether the peaks lie
on one line: the differences between them must be equal to the byte, in every category of every phase. Then the line is
followed. Another line could be higher at a greater depth: the prediction of all blocks, which comes after it, tells.
"""

from __future__ import annotations

from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.subject import SubjectError, block_count
from lab.experiments.memory_timeline.tracking import Tracked, track
from lab.records.memory import CATEGORIES, Extrapolation, PhasePeak

FIRST, LAST = 2, 6
"""Depths that are tried, in segments of a checkpoint or in blocks."""
LEAST = 20
"""Of so many on it is worth it."""

Peaks = dict[tuple[int, str], list[int]]


def extrapolated(params: Params, least: int = LEAST) -> Extrapolation | None:
    """The prediction of the whole from few blocks; None where blocks are few or differ, or the peaks are not on one line."""
    try:
        blocks = block_count(params)
        unit = params.every if params.checkpoint == "every" else 1
        if blocks < least * unit or blocks % unit or params.checkpoint in ("all", "chosen"):
            return None
        shallow: list[Tracked] = []
        for depth in range(FIRST, min(LAST, blocks // unit) + 1):
            shallow.append(track(params, fake=True, blocks=depth * unit))
            if shallow[-1].fault:
                return None
            if len(shallow) > 2 and (found := _followed(shallow[-3:], depth, blocks, unit)):
                return found
    except SubjectError:
        return None
    return None


def _followed(shallow: list[Tracked], deepest: int, blocks: int, unit: int) -> Extrapolation | None:
    """From three depths of which the last has ``deepest`` segments of ``unit`` blocks."""
    before, middle, last = (phase_peaks(tracked) for tracked in shallow)
    if not before.keys() == middle.keys() == last.keys():
        return None
    more, peaks = blocks // unit - deepest, {}
    for key, sizes in last.items():
        steps = [b - a for a, b in zip(middle[key], sizes, strict=True)]
        if steps != [b - a for a, b in zip(before[key], middle[key], strict=True)]:
            return None
        peaks[key] = [size + more * step for size, step in zip(sizes, steps, strict=True)]
    (step, phase), highest = max(peaks.items(), key=lambda item: item[1][0])
    parameters = shallow[2].parameters + more * (shallow[2].parameters - shallow[1].parameters)
    return Extrapolation(
        blocks,
        tuple(depth * unit for depth in range(deepest - 2, deepest + 1)),
        highest[0],
        step,
        phase,
        dict(zip(CATEGORIES, highest[1:], strict=True)),
        tuple(PhasePeak(step, phase, sizes[0]) for (step, phase), sizes in peaks.items()),
        parameters,
    )


def phase_peaks(tracked: Tracked) -> Peaks:
    """(step, phase) -> most bytes alive, and their categories."""
    found: Peaks = {}
    for op, event in tracked.reading.instants[1:]:
        operation, total = tracked.reading.operations[op], tracked.reading.totals[event]
        key = operation.step, operation.phase
        if total > found.get(key, [-1])[0]:
            found[key] = [total, *tracked.reading.states[event]]
    return found
