"""What the step is bound by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lab.experiments.op_profile.device_work import busy_s
from lab.experiments.op_profile.steps import LOADING, loader_rows, step_rows
from lab.instruments.profiling.dispatch import counted_ns, is_short, lost_ns
from lab.instruments.profiling.tree import Tree
from lab.records.profiling import Dispatch, PythonTime, StepParts, Trial, Verdict

_NAMES = {
    "input": "waiting for the next batch",
    "copies": "copying to the device",
    "host": "Python and the dispatch of short operators",
    "device": "operators that do real work",
}
_AGREE = 0.7
"""Share of the profiled steps that must be bound by the same."""
HELPS = 1.05
"""A change is offered when its slowest pair of steps was still so many times as fast."""


def verdict(
    steps: Sequence[tuple[StepParts, Tree, Sequence[float]]],
    cost: Dispatch,
    *,
    on_device: bool,
    python: PythonTime | None = None,
    trials: Sequence[Trial] = (),
) -> Verdict:
    """``steps``: of each profiled step its parts, its profile, and what its operations usually take."""
    each = [shares_of(*step, cost, on_device=on_device) for step in steps]
    shares = mean_shares(each)
    bound: Any = max(shares, key=lambda name: shares[name])
    agreeing = Counter(max(one, key=lambda name: one[name]) for one in each)[bound] / len(each)
    withheld = "" if agreeing >= _AGREE else f"Only {agreeing:.0%} of the profiled steps are bound by the same."
    text = f"{shares[bound]:.0%} of the step is {_NAMES[bound]}."
    if bound == "host" and python and python.share > 0.5 * shares["host"]:
        text = f"{python.share:.0%} of the step is Python between the operators."
    return Verdict(bound, text, shares, *_next(trials), withheld=withheld)


def _next(trials: Sequence[Trial]) -> tuple[dict[str, Any], str, str]:
    """The change that helped most, what the button says, what was measured."""
    helping = [trial for trial in trials if helps(trial)]
    if not helping:
        tried = [trial for trial in trials if trial.factor is not None]
        none = "Nothing that was tried made the step faster." if tried else "No change was tried."
        return {}, "", " ".join([none, *map(trial_text, trials)])
    best = max(helping, key=lambda trial: trial.factor or 0.0)
    return best.change, best.label, trial_text(best)


def helps(trial: Trial) -> bool:
    """Every pair of steps says so."""
    return trial.low is not None and trial.low > HELPS


def trial_text(trial: Trial) -> str:
    """What a trial gave, in a sentence."""
    if trial.factor is None or trial.low is None or trial.high is None:
        return f"{trial.label}? {trial.why_not}"
    return (
        f"{trial.label}: tried here, {trial.factor:.2f} times as fast a {trial.per} "
        f"({trial.low:.2f} to {trial.high:.2f} in {trial.pairs} pairs)."
    )


def mean_shares(each: Sequence[dict[str, float]]) -> dict[str, float]:
    """Every step counts alike."""
    return {name: sum(one[name] for one in each) / len(each) for name in _NAMES}


def shares_of(
    step: StepParts, tree: Tree, usual: Sequence[float], cost: Dispatch, *, on_device: bool
) -> dict[str, float]:
    """Shares of the step without what other programs took of it; they add up to 1. What is neither input, nor copies, nor
    work is the host's."""
    whole_s = step.total_s - (0.0 if on_device else lost_ns(tree, usual) / 1e9)
    loading, copy = (min(1.0, (part or 0.0) / whole_s) for part in (step.data_loading_s, step.copy_to_device_s))
    working = busy_s([tree]) if on_device else work_s(tree, usual, cost)
    working = min(working / whole_s, max(0.0, 1 - loading - copy))
    return {"input": loading, "copies": copy, "host": max(0.0, 1 - loading - copy - working), "device": working}


def work_s(tree: Tree, usual: Sequence[float], cost: Dispatch) -> float:
    """Self time of the operators that are more than dispatch, outside loading and copying."""
    events, skipped, total_ns = tree.events, set(loader_rows(tree)), 0.0
    for row in step_rows(tree):
        if row in skipped or events.name[row] in (LOADING, "copy_to_device") or tree.parent[row] in skipped:
            skipped.add(row)
        elif events.kind[row] == "op" and not is_short(usual[row], cost):
            total_ns += counted_ns(tree.self_ns[row], usual[row])
    return total_ns / 1e9
