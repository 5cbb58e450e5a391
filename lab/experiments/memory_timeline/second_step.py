"""Why a second step needs more than the first: what it found there, or larger work of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from lab.contract import Finding
from lab.experiments.memory_timeline.schema import Result
from lab.quantities import bytes_text
from lab.records.memory import CATEGORIES

_SMALL = 0.02


def _first_step(result: Result) -> Iterator[Finding]:
    rows = [_highest_row(result, step) for step in (0, 1)]
    if None in rows:
        return
    totals = result.timeline.totals()
    first, second = (totals[row] for row in rows if row is not None)
    assert rows[1] is not None
    if second <= (1 + _SMALL) * first:
        return
    found = _found_by(result, rows[1])
    more = second - first
    reasons = [_reason(category, size) for category, size in found.most_common() if size >= 0.1 * more]
    own = more - sum(found.values())
    if own > 0.5 * more:
        reasons = [f"its own tensors are larger by {bytes_text(own)}: it runs on other shapes than step 1", *reasons]
    if not reasons:
        return
    text = f"The forward of step 2 needs {bytes_text(more)} more: {'; '.join(reasons)}. A first step that fits proves nothing."
    evidence = {"forward of step 1_bytes": first, "forward of step 2_bytes": second}
    evidence |= {f"{name.replace('_', ' ')} of step 1_bytes": size for name, size in found.items()}
    yield Finding(level="surprise", title="The second step needs more than the first", text=text, evidence=evidence)


def _highest_row(result: Result, step: int) -> int | None:
    """Row of the largest total in the forward of a step."""
    table, totals = result.timeline, result.timeline.totals()
    rows = [
        i for i, (s, phase) in enumerate(zip(table.step, table.phase, strict=True)) if (s, phase) == (step, "forward")
    ]
    return max(rows, key=totals.__getitem__, default=None)


def _found_by(result: Result, row: int) -> Counter[str]:
    """Bytes by category, alive in ``row``, of what step 1 made."""
    lives, table = result.lives, result.timeline
    born: dict[int, int] = {}
    for first, storage in zip(lives.first, lives.storage, strict=True):
        born[storage] = min(first, born.get(storage, first))
    found: Counter[str] = Counter()
    for first, end, category, size, storage in zip(
        lives.first, lives.end, lives.category, lives.bytes, lives.storage, strict=True
    ):
        if first <= row < end and born[storage] > 0 and table.step[born[storage]] == 0:
            found[CATEGORIES[category]] += size
    return found


def _reason(category: str, size: int) -> str:
    texts = {
        "optimizer_state": "optimizer state, which the first optimizer step made",
        "gradients": "the gradients of step 1, not yet cleared",
        "saved": "what the graph of step 1 saved, which lives until its loss gives up the name or whatever holds it",
        "weight_casts": "half-size copies of weights that the graph of step 1 holds",
        "held": "tensors of step 1 that the program holds",
        "workspaces": "memory of step 1 that only the allocator sees",
    }
    return f"{bytes_text(size)} of {texts.get(category, category.replace('_', ' ') + ' of step 1')}"


LOOKS: tuple[Callable[[Result], Iterator[Finding]], ...] = (_first_step,)
