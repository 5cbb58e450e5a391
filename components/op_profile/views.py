"""The views of the page: verdict and headline, step, operators, timeline, ceilings, kernels, traps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pandas as pd
import streamlit as st

from components.frame import experiment as frame
from components.frame.page_state import PageState
from components.frame.share_link import lesson_of
from components.kit.palette import STEP, Theme
from components.op_profile.charts.step import ceiling_chart, ceiling_rows, parts_of, step_chart, step_limit
from components.op_profile.operator_table import operator_table
from components.op_profile.trace_file import trace_file
from components.op_profile.trace_timeline import trace_timeline
from components.op_profile.traps import traps
from lab.contract import ParamsError
from lab.quantities import number_text, seconds_text
from lab.records.profiling import Ceilings, ProfileResult, Spread, Verdict

Page = frame.ExperimentPage[ProfileResult]
Side = frame.Side[ProfileResult]
VIEWS = ("Step", "Operators", "Timeline", "Ceilings", "Kernels", "Traps")


def chosen_view(state: PageState) -> str:
    """The segmented control above the figure. A trap opens the traps; a preset without one, or no trap any more, leaves them."""
    key, trap = state.key("view"), state.values["trap"]
    lesson = lesson_of(state.values, state.lessons)
    about = [trap, lesson.title if lesson else ""]
    before = state.get("about")
    if about != before:
        state.set("about", about)
        leaves = before is not None and (before[0] != "none" or about[1]) and st.session_state.get(key) == "Traps"
        if trap != "none" or leaves:
            st.session_state[key] = "Traps" if trap != "none" else VIEWS[0]
    st.session_state.setdefault(key, VIEWS[0])
    return st.segmented_control("View", VIEWS, required=True, key=key, label_visibility="collapsed") or VIEWS[0]


def draw_view(view: str, page: Page, side: Side) -> None:
    """One view of one result."""
    result = side.result
    if view == "Traps":
        traps(page.state, result.trap, side.key, wide=page.presenting)
    elif result.step is not None:
        _verdict(page, side)
        _DRAWN[view](page, side, result)


def _verdict(page: Page, side: Side) -> None:
    result = side.result
    verdict, overhead = result.verdict, result.overhead
    if verdict is None or overhead is None:
        return
    bare = overhead.bare_s
    with st.container(border=True, key=f"{side.key}-verdict", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            share = verdict.shares[verdict.bound]
            said = f"**Bound by {_BOUND[verdict.bound]}**: {share:.0%} of the step"
            if verdict.withheld:
                said = "**No verdict**: this machine is busy"
            st.markdown(said, width="content", help=verdict.withheld or verdict.text)
            _next_step(page, side, verdict)
        numbers = [("step", seconds_text(bare.median), f"bare; {seconds_text(bare.min)} to {seconds_text(bare.max)}")]
        numbers += [
            (_BOUND[name].removeprefix("the "), f"{share:.0%}", "of the step")
            for name, share in verdict.shares.items()
            if name != verdict.bound and (share >= 0.005 or name in ("host", "device"))
        ]
        if result.python and result.python.share >= 0.05:
            numbers.append(("Python", f"{result.python.share:.0%}", "between operators, in the host's share"))
        cost = f"× {overhead.ratio:.2f}" if overhead.ratio > 1.02 else "≈ × 1"
        if result.busy:
            cost = "?"
        numbers.append(("profiler", cost, f"{overhead.events_per_step:,} events a step"))
        if result.ceilings and (reached := _reached(result, bare, result.ceilings)):
            numbers.append(("arithmetic", f"{reached:.0%}", "of a large matmul"))
        with st.container(horizontal=True, gap="medium"):
            for name, value, against in numbers:
                st.markdown(f"**{value}** {name}  \n:small[:gray[{against}]]", width="content")
        if ran := _ran_on(result):
            st.caption(ran)


def _ran_on(result: ProfileResult) -> str:
    """Threads and kernels: one thread picks others than two."""
    threads = f"{result.threads} thread{'s' * (result.threads != 1)}, as a bare program has" if result.threads else ""
    said = [*([threads] if threads else []), *result.backends, *([result.busy] if result.busy else [])]
    return ". ".join(text[:1].upper() + text[1:].removesuffix(".") for text in said) + "." * bool(said)


def _reached(result: ProfileResult, bare_s: Spread, ceilings: Ceilings) -> float:
    """FLOP/s of the bare step against those of the matmul."""
    flops = sum(count for count in result.calls.flops if count is not None) / result.profiled_steps
    return flops / bare_s.median / ceilings.flops_per_s


_BOUND = {"host": "the host", "device": "the operators", "copies": "copies", "input": "input"}


def _next_step(page: Page, side: Side, verdict: Verdict) -> None:
    """The button that makes the change that helped most, and shows the difference to this result, which becomes A: so
    improvements chain."""
    if not verdict.next_change or page.side is None or side.key != page.side.key:
        return
    change = {**asdict(side.params), **verdict.next_change}
    try:
        type(side.params)(**change)
    except ParamsError:
        return
    st.button(
        verdict.next_label, key=f"{side.key}-next", icon=":material/arrow_forward:", help=verdict.next_reason,
        on_click=_try, args=(page.state, side.job.id, change),
    )  # fmt: skip


def _try(state: PageState, job_id: str, change: dict[str, Any]) -> None:
    state.set("pinned", job_id)
    state.replace(change)
    state.press_run()


def _step(page: Page, side: Side, result: ProfileResult) -> None:
    if result.overhead is None:
        return
    iterations, bare_s, pinned = result.iterations, result.overhead.bare_s, page.pinned
    drawn = [other.result for other in (page.pinned, page.side) if other]
    limit_ms = max(step_limit(one.iterations, one.overhead.bare_s) for one in drawn if one.overhead)
    _legend(parts_of(iterations))
    chart = step_chart(
        iterations, bare_s, theme=theme(), scale=_scale(page), brief=pinned is not None, limit_ms=limit_ms
    )
    st.altair_chart(chart, key=f"{side.key}-step", width="stretch")
    if result.steps_cut:
        st.caption(result.steps_cut)
    for note in result.notes:
        st.caption(note)


def _legend(parts: list[str]) -> None:
    """Wraps where the figure is narrow, which the chart's own legend does not."""
    colours = STEP[theme()]
    entries = "".join(
        f'<span style="white-space:nowrap"><span style="display:inline-block;width:.9em;height:.9em;border-radius:.2em;'
        f'vertical-align:-.08em;margin-right:.35em;background:{colours[part]}"></span>{part}</span>'
        for part in parts
    )
    st.html(f'<div style="display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.88em">{entries}</div>')


def _operators(page: Page, side: Side, result: ProfileResult) -> None:
    operator_table(
        result.calls, steps=result.profiled_steps, group_by=side.params.group_by, device=result.kernels is not None,
        key=f"{side.key}-operators", height=820 if page.presenting else 560,
    )  # fmt: skip
    if result.places_missing:
        st.caption(result.places_missing)


def _timeline(page: Page, side: Side, result: ProfileResult) -> None:
    timeline = result.timeline
    trace_timeline(timeline, key=f"{side.key}-timeline", height=820 if page.presenting else 480)
    drawn = len(timeline.name)
    if drawn < timeline.events:
        st.caption(
            f"{drawn:,} of {timeline.events:,} events: {timeline.steps} of {result.profiled_steps} profiled steps."
        )
    st.download_button(
        "Trace for Perfetto", lambda: trace_file(timeline), "trace.json.gz", "application/gzip",
        key=f"{side.key}-trace", on_click="ignore", icon=":material/download:",
        help="Open it at ui.perfetto.dev or chrome://tracing. The steps are laid end to end.",
    )  # fmt: skip


def _ceilings(page: Page, side: Side, result: ProfileResult) -> None:
    ceilings = result.ceilings
    if ceilings is None:
        return
    threads = f", {ceilings.threads} thread{'s' * (ceilings.threads > 1)}" if ceilings.threads else ""
    st.caption(
        f"This device at its best, measured in this run: {number_text(ceilings.flops_per_s / 1e9)} GFLOP/s in a matmul of "
        f"{ceilings.matmul_side} × {ceilings.matmul_side} ({ceilings.dtype}{threads}), "
        f"{number_text(ceilings.bytes_per_s / 1e9)} GB/s in a copy of {ceilings.copy_bytes >> 20} MiB, read and write "
        "together. Decimal units: G is 10⁹."
    )
    rows = ceiling_rows(result.operators, ceilings, device=result.kernels is not None)
    if not rows:
        st.text("No operator of this step has a known amount of arithmetic or traffic.")
        return
    st.altair_chart(ceiling_chart(rows, theme=theme(), scale=_scale(page)), key=f"{side.key}-ceilings", width="stretch")
    st.caption(
        "Traffic is the least that the shapes allow: every input read once, every output written once. Over 100 % of the "
        "traffic ceiling: the data came from a cache. An operator far below both ceilings is too small, or waits."
    )


def _kernels(page: Page, side: Side, result: ProfileResult) -> None:
    table = result.kernels
    if table is None:
        st.text("Kernels need a CUDA device: on a CPU the operator is the work, and its time is in the operator table.")
        return
    st.dataframe(pd.DataFrame(vars(table)), hide_index=True, key=f"{side.key}-kernels", column_config=_KERNEL_COLUMNS)


_KERNEL_COLUMNS: dict[str, Any] = {
    "name": st.column_config.Column("kernel", help="As the driver names it."),
    "calls": st.column_config.Column("launches", help="In all profiled steps."),
    "total_s": st.column_config.NumberColumn("time (s)", format="%.6f", help="On the device, in all profiled steps."),
    "operator": st.column_config.Column(help="The operator that launched it."),
    "occupancy": st.column_config.NumberColumn(
        format="percent", help="Estimated share of the warps that an SM can hold."
    ),
}
_DRAWN: dict[str, Callable[[Page, Side, ProfileResult], None]] = {
    "Step": _step, "Operators": _operators, "Timeline": _timeline, "Ceilings": _ceilings, "Kernels": _kernels,
}  # fmt: skip


def difference(page: Page) -> None:
    """Two runs, operator by operator: self time of one step, largest change first."""
    if page.pinned is None or page.side is None or None in (page.pinned.result.step, page.side.result.step):
        return
    a, b = (_self_by_name(side.result) for side in (page.pinned, page.side))
    rows = [
        {
            "operator": name,
            "A (ms)": a.get(name, 0.0),
            "B (ms)": b.get(name, 0.0),
            "B − A (ms)": b.get(name, 0.0) - a.get(name, 0.0),
        }
        for name in {**a, **b}
    ]
    table = pd.DataFrame(rows).sort_values("B − A (ms)", key=abs, ascending=False)
    st.markdown("**Operator by operator**: self time of one step. A row that one side does not have counts as 0 there.")
    number = st.column_config.NumberColumn(format="%.3f")
    st.dataframe(
        table, hide_index=True, key=f"{page.side.key}-difference", column_config=dict.fromkeys(table.columns[1:], number),
    )  # fmt: skip


def _self_by_name(result: ProfileResult) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, self_s in zip(result.calls.name, result.calls.self_s, strict=True):
        found[name] = found.get(name, 0.0) + self_s * 1e3 / result.profiled_steps
    return found


def _scale(page: Page) -> float:
    return 1.6 if page.presenting else 1.0


def theme() -> Theme:
    """The theme that the visitor sees."""
    return "dark" if st.context.theme.type == "dark" else "light"
