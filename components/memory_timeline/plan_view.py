"""A checkpoint plan: what each choice costs, which blocks it takes, and how it ran."""

from __future__ import annotations

from typing import Any

import streamlit as st

from components.kit.palette import Theme
from components.kit.tables import draw_table
from components.memory_timeline.charts.plan import blocks_chart, frontier_chart
from lab.quantities import bytes_text, number_text, seconds_text, short_bytes_text
from lab.records.memory import MemoryResult
from lab.records.memory_plan import CheckpointPlan, PlannedBlock, PlanRun

RUNS = {
    "choice": "",
    "segments": "That were checkpointed.",
    "peak": "As it ran, or predicted on tensors without data.",
    "bytes": "The same, exact.",
    "by the sum over blocks": "What the search computed for it; segments of several blocks are not covered.",
    "within": "The budget.",
    "step": "Median of single steps, the choices in turns.",
    "step by the sum": "The step without checkpointing and the forwards that run twice.",
    "run twice": "Share of the blocks' forward.",
}
BLOCKS = {
    "number": "As the control counts, from 0.",
    "block": "",
    "keeps": "From its forward to its backward, without checkpointing.",
    "keeps, checkpointed": "Its input.",
    "bytes": "Kept without checkpointing, exact.",
    "bytes, checkpointed": "",
    "one more forward": "Median of 6 steps in runs without the instrument, equal blocks together; FLOPs in a prediction.",
    "in the plan": "",
}


def draw_plan(result: MemoryResult, theme: Theme, key: str, presenter: bool) -> None:
    """The plan, or why there is none."""
    plan = result.plan
    if plan is None:
        st.text(_none_text(result))
        return
    st.markdown(f"#### {headline(plan)}")
    if presenter:
        chart = frontier_chart(plan, theme, font_px=22, height=520)
        st.altair_chart(chart, key=f"{key}-frontier", width="stretch")
        return
    st.caption(
        "The peak of a choice is a sum over blocks: what the blocks before keep, and what one block needs in its forward and "
        "in its backward, where a checkpointed one has saved everything again. The search is exact for single blocks."
    )
    st.altair_chart(frontier_chart(plan, theme), key=f"{key}-frontier", width="stretch")
    draw_table([_run_row(run, plan) for run in plan.runs], RUNS, f"{key}-runs", "")
    st.altair_chart(blocks_chart(plan, theme), key=f"{key}-blocks", width="stretch")
    draw_table([_block_row(block, plan) for block in plan.blocks], BLOCKS, f"{key}-table", "")


def headline(plan: CheckpointPlan) -> str:
    """The plan in one line."""
    budget, chosen = short_bytes_text(plan.budget_bytes), plan.runs[0]
    if not plan.within:
        return f"No choice of blocks stays within {budget}; the least is {short_bytes_text(plan.least_bytes)}"
    if not chosen.segments:
        return f"Nothing need be checkpointed for {budget}: the peak is {short_bytes_text(chosen.peak_bytes)}"
    return (
        f"{chosen.segments} of {len(plan.blocks)} blocks checkpointed: {short_bytes_text(chosen.peak_bytes)}, "
        f"for a budget of {budget}"
    )


def _none_text(result: MemoryResult) -> str:
    if result.plan_reason:
        return f"No plan. {result.plan_reason}"
    return "No plan was asked for." if result.complete else "Not planned yet."


def _run_row(run: PlanRun, plan: CheckpointPlan) -> dict[str, Any]:
    modelled = run.modelled_peak_bytes
    return {
        "choice": run.name,
        "segments": run.segments,
        "peak": short_bytes_text(run.peak_bytes),
        "bytes": run.peak_bytes,
        "by the sum over blocks": "" if modelled is None else bytes_text(modelled),
        "within": "yes" if run.within else "no",
        "step": seconds_text(run.step_s) if run.step_s else "not clocked",
        "step by the sum": seconds_text(run.modelled_step_s) if run.modelled_step_s else "",
        "run twice": "" if run.recomputed_cost is None else f"{run.recomputed_cost / plan.forward_cost:.0%}",
    }


def _block_row(block: PlannedBlock, plan: CheckpointPlan) -> dict[str, Any]:
    cost = seconds_text(block.cost) if plan.unit == "seconds" else f"{number_text(block.cost)} FLOPs"
    return {
        "number": block.number,
        "block": block.path,
        "keeps": short_bytes_text(block.kept_bytes),
        "keeps, checkpointed": short_bytes_text(block.checkpointed_bytes),
        "bytes": block.kept_bytes,
        "bytes, checkpointed": block.checkpointed_bytes,
        "one more forward": cost,
        "in the plan": "checkpointed" if block.checkpointed else "kept",
    }
