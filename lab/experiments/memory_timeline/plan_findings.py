"""What a checkpoint plan says: which blocks, what it costs, and that it ran as modelled."""

from __future__ import annotations

from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.memory_timeline.schema import Result, numbers_text
from lab.quantities import bytes_text, short_bytes_text
from lab.records.memory_plan import CheckpointPlan, PlanRun

_SMALL, _CLOSE = 0.05, 0.01


def plan_run(plan: CheckpointPlan, name: str) -> PlanRun | None:
    """The run of this name."""
    return next((run for run in plan.runs if run.name == name), None)


def _plan(result: Result) -> Iterator[Finding]:
    plan = result.plan
    if plan is None:
        return
    if not plan.within:
        text = (
            f"Checkpointing lowers the peak to {bytes_text(plan.least_bytes)} at best: what is left is parameters, gradients, "
            "optimizer state, and the inside of one block. A smaller batch or lower precision acts on those."
        )
        evidence = {"budget_bytes": plan.budget_bytes, "least_bytes": plan.least_bytes}
        yield Finding(
            level="warning", title="No choice of blocks stays within the budget", text=text, evidence=evidence
        )
        return
    chosen, every = plan.runs[0], plan_run(plan, "every block")
    if not chosen.segments or every is None or not chosen.within:
        return
    if abs((chosen.modelled_peak_bytes or 0) - chosen.peak_bytes) > _CLOSE * chosen.peak_bytes:
        return
    if (chosen.recomputed_cost or 0) > (1 - _SMALL) * (every.recomputed_cost or 0):
        return
    yield Finding(
        level="fact",
        title=f"{chosen.segments} of {len(plan.blocks)} blocks are enough for {short_bytes_text(plan.budget_bytes)}",
        text=_text(plan, chosen),
        evidence=_evidence(plan, chosen, every),
        change=chosen.knobs,
    )


def _text(plan: CheckpointPlan, chosen: PlanRun) -> str:
    share = (chosen.recomputed_cost or 0) / plan.forward_cost
    numbers = numbers_text(block.number for block in plan.blocks if block.checkpointed)
    how = f"{'Run' if plan.measured else 'Predicted'} so, the peak is {bytes_text(chosen.peak_bytes)}"
    return (
        f"Blocks {numbers} run twice, {share:.0%} of the blocks' forward in {plan.unit}; no cheaper choice of whole blocks stays "
        f"within the budget. {how}; the sum over blocks said {bytes_text(chosen.modelled_peak_bytes or 0)}."
    )


def _evidence(plan: CheckpointPlan, chosen: PlanRun, every: PlanRun) -> dict[str, float | str]:
    found: dict[str, float | str] = {"plan peak_bytes": chosen.peak_bytes, "every block peak_bytes": every.peak_bytes}
    if chosen.step_s and every.step_s:
        found |= {"plan step_s": chosen.step_s, "every block step_s": every.step_s}
    return found


LOOKS = (_plan,)
