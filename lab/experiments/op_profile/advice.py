"""What was tried, and what it gave."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.op_profile.schema import Result
from lab.experiments.op_profile.verdict import helps
from lab.records.profiling import Trial


def advice(result: Result) -> Iterator[Finding]:
    """The change that helped most, or that none did; never one that was not measured, unless as a question."""
    tried = [trial for trial in result.trials if trial.factor is not None]
    asked = [trial for trial in result.trials if trial.factor is None]
    if not tried:
        return
    best = max(tried, key=lambda trial: trial.low or 0.0)
    others = [_words(trial) for trial in tried if trial is not best]
    questions = [f"{trial.label}? {trial.why_not}" for trial in asked]
    if helps(best):
        title = f"{best.label}: {best.factor:.2f} times as fast a {best.per}"
    else:
        title, others = "No change that was tried makes this step faster", [_words(best), *others]
    yield Finding(
        level="fact",
        title=title,
        text=" ".join([_spread(best), *others, *questions]).strip() if helps(best) else " ".join([*others, *questions]),
        evidence={trial.label: f"× {trial.factor:.2f} ({trial.low:.2f} to {trial.high:.2f})" for trial in tried},
        change=best.change if helps(best) else {},
    )


def _spread(trial: Trial) -> str:
    return f"Tried here, in turn with the step: {trial.low:.2f} to {trial.high:.2f} times in {trial.pairs} pairs."


def _words(trial: Trial) -> str:
    factor, low, high = trial.factor or 1.0, trial.low or 1.0, trial.high or 1.0
    if low > 1.05:
        return f"{trial.label}: {factor:.2f} times as fast."
    if high < 1 / 1.05:
        return f"{trial.label}: {1 / factor:.1f} times as slow."
    return f"{trial.label}: no clear difference ({low:.2f} to {high:.2f} times as fast)."
