"""Changes are tried before they are offered: a step with the change and one without take turns.

What helps on one host hurts on another: bfloat16 without instructions for it makes a step several times slower.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from lab.contract import ParamsError, Report
from lab.experiments.op_profile.schema import Params
from lab.experiments.op_profile.steps import Measured, mean_step
from lab.experiments.op_profile.subject import NoStep, Subject, changed_subject
from lab.experiments.op_profile.verdict import mean_shares, shares_of
from lab.instruments.profiling.dispatch import least, usual_ns
from lab.instruments.profiling.step_clock import disturbed, lap, unmarked
from lab.records.profiling import StepParts, Trial

_WARM_UP, _PAIRS, _FEWEST = 2, 9, 3
_TRIAL_S, _SLOW_S = 1.5, 1.5
"""Time of one trial, and a step that is too slow for one."""


@dataclass(frozen=True)
class Change:
    """Something to try."""

    change: dict[str, Any]
    label: str
    per: Literal["step", "sample"] = "step"
    why_not: str = ""
    """Why it is not tried."""


def changes(params: Params, step: StepParts, shares: dict[str, float]) -> Iterator[Change]:
    """What could help a step like this one, most promising first."""
    ours, host, work = params.model != "own", shares["host"], shares["device"]
    if shares["input"] > 0.15 and ours and params.workers < 4:
        workers = params.workers + 1
        yield Change({"workers": workers}, f"Load with {workers} worker process{'es'[: 2 * (workers > 1)]}")
    if shares["copies"] > 0.15 and params.device == "cuda" and not params.pin_memory and ours:
        yield Change({"pin_memory": True}, "Pin the memory")
    if step.optimizer_s > 0.15 * step.total_s and params.optimizer_impl != "fused":
        yield Change({"optimizer_impl": "fused"}, "Fuse the optimizer")
    if not params.set_to_none:
        yield Change({"set_to_none": True}, "Drop the gradients")
    if work > 0.3 and params.model == "cnn" and not params.channels_last:
        yield Change({"channels_last": True}, "Order images channels last")
    if work > 0.3 and params.precision == "fp32" and params.model != "lstm":
        yield Change({"precision": "bf16_autocast"}, "Compute in bfloat16")
    if host > 0.3 and ours and params.batch < 1024:
        batch = min(4096, params.batch * 8)
        yield Change({"batch": batch}, f"Raise the batch to {batch}", per="sample")
    if ours and not params.compile and host + work > 0.5:
        yield Change({"compile": True}, "Compile the model", why_not="Compiling takes seconds, so it was not tried.")


def try_changes(
    params: Params, found: Subject, measured: Measured, deadline: float, report: Report
) -> tuple[Trial, ...]:
    """One trial a change. The step itself goes on training meanwhile."""
    profiled = [i.parts for i in measured.iterations if i.kind == "profiled" and i.parts]
    step, cost = mean_step(profiled), least(measured.dispatch)
    steps = zip(profiled, measured.trees, usual_ns(measured.trees, cost, measured.ceilings), strict=True)
    shares = mean_shares([shares_of(*one, cost, on_device=params.device != "cpu") for one in steps])
    trials = []
    for number, change in enumerate(changes(params, step, shares)):
        report(0.78 + 0.03 * number, f"trying: {change.label.lower()}")
        trials.append(_tried(params, found, change, step.total_s, deadline))
    return tuple(trials)


def _tried(params: Params, found: Subject, change: Change, step_s: float, deadline: float) -> Trial:
    untried = Trial(change.change, change.label, None, None, None, 0, change.per, change.why_not)
    if change.why_not:
        return untried
    if step_s > _SLOW_S or time.monotonic() > deadline:
        return replace(untried, why_not="The step is too slow to try it here.")
    try:
        changed = changed_subject(replace(params, **change.change), found)
    except ParamsError as error:
        return replace(untried, why_not=str(error))
    if isinstance(changed, NoStep):
        return replace(untried, why_not=changed.fault.message)
    try:
        factors = _pairs(found, changed, params.device)
    except Exception as error:  # noqa: BLE001 - a kernel that this host lacks, a program that refuses the change
        return replace(untried, why_not=f"{type(error).__name__}: {error}"[:300])
    finally:
        if changed.step is not found.step:
            changed.step.close()
    scale = change.change["batch"] / params.batch if change.per == "sample" else 1.0
    scaled = sorted(factor * scale for factor in factors)
    return Trial(
        change.change, change.label, median(scaled), scaled[0], scaled[-1], len(scaled), change.per,
    )  # fmt: skip


def _pairs(found: Subject, changed: Subject, device: str) -> list[float]:
    """Time of the step over that of the changed one, of pairs that nobody disturbed; of all when there are too few."""
    for _ in range(_WARM_UP):
        changed.step(unmarked)
    started, pairs = time.monotonic(), []
    while len(pairs) < _FEWEST or (len(pairs) < _PAIRS and time.monotonic() - started < _TRIAL_S):
        pairs.append([lap(lambda step=subject.step: step(unmarked), device) for subject in (found, changed)])
    bad = [any(both) for both in zip(*(disturbed(laps) for laps in zip(*pairs, strict=True)), strict=True)]
    calm = [pair for pair, was_disturbed in zip(pairs, bad, strict=True) if not was_disturbed]
    counted = calm if len(calm) >= _FEWEST else pairs
    factors = sorted(one.total_s / other.total_s for one, other in counted)
    cut = len(factors) // 5  # what else happened in a pair without being seen
    return factors[cut : len(factors) - cut]
