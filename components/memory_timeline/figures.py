"""The views of the memory page: headline numbers, timeline, settings, saved tensors, fit, out of memory."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import streamlit as st

from components.kit.palette import Theme
from components.kit.tables import draw_table
from components.memory_timeline.charts import memory as charts
from components.memory_timeline.fit_view import draw_fit
from components.memory_timeline.plan_view import draw_plan
from components.memory_timeline.rulers_view import draw_differences, draw_message, draw_rulers, fragmentation_text
from components.memory_timeline.timeline import memory_view
from components.memory_timeline.timeline.scene import phase_text
from lab.quantities import bytes_text, seconds_text, short_bytes_text
from lab.records.memory import (
    CATEGORY_TEXTS,
    OOM,
    Curve,
    Extrapolation,
    MemoryResult,
    Owner,
    Prediction,
    Run,
    SavedTensor,
)

VIEWS = {
    "timeline": "Timeline",
    "settings": "Settings",
    "saved": "Saved",
    "plan": "Checkpointing",
    "fit": "Will it fit?",
    "oom": "Out of memory",
}
RUNS = {
    "setting": "",
    "peak": "Largest sum alive at one operation.",
    "bytes": "The same, exact.",
    "falls in": "Phase and operation of the peak.",
    "step": "Median of single steps in runs of their own, without the instrument.",
    "spread": "Fastest and slowest of them.",
    "saved": "Kept for backward at the end of the last forward.",
    "recomputed operations": "Run a second time in backward.",
    "operations": "",
    "left behind": "Bytes that the last step added for good.",
}
SAVED = {
    "module": "",
    "operation": "The autograd node that keeps it.",
    "slot": "Name in the derivative formula.",
    "shape": "Empty for a placeholder of checkpointing.",
    "dtype": "",
    "bytes": "Of the tensor itself.",
    "storage bytes": "Of the storage that it keeps alive. Equal storages are one piece of memory.",
    "storage": "Number of the storage.",
    "holds": "What that storage is: a saved parameter or input costs nothing more.",
    "kept": "Kept, or recomputed in backward.",
}
OWNERS = {"category": "", "module": "", "operation": "", "tensors": "", "size": "", "bytes": ""}
DTYPES = {"operation": "Of the last forward.", "output dtype": "", "tensors": "How often."}


def theme() -> Theme:
    """The theme that the visitor sees."""
    return "dark" if st.context.theme.type == "dark" else "light"


def choose_view(key: str) -> str:
    """The segmented control above the figure; the view is not part of the experiment."""
    chosen = st.segmented_control(
        "View", list(VIEWS), format_func=VIEWS.__getitem__, default="timeline", required=True, key=key,
        label_visibility="collapsed",
    )  # fmt: skip
    return chosen or "timeline"


def draw_view(view: str, result: MemoryResult, key: str, presenter: bool) -> None:
    """Headline numbers, then the one figure of the view."""
    if not result.timeline.index and result.extrapolation:
        _headline(result, key)
        _first_answer(result, result.extrapolation, key)
        return
    if not result.timeline.index:
        st.text("The program left nothing to measure. The reason is beside this.")
        return
    if not (presenter and view == "timeline"):  # the figure says the same and needs the screen
        _headline(result, key)
    {"timeline": _timeline, "settings": _settings, "saved": _saved, "plan": _plan, "fit": _fit, "oom": _out_of_memory}[
        view
    ](result, f"{key}-{view}", presenter)


def _headline(result: MemoryResult, key: str) -> None:
    peak, seconds = result.peak, result.step_s
    largest = max(peak.categories, key=peak.categories.__getitem__)
    numbers = [
        (f"peak, {'predicted' if result.predicted else 'measured'}", short_bytes_text(peak.bytes), f"{peak.bytes:,} B"),
        ("falls in", f"{phase_text(peak.phase)}, step {peak.step + 1}", _cut(peak.op)),
        ("most of it", CATEGORY_TEXTS[largest], short_bytes_text(peak.categories[largest])),
    ]
    if seconds:
        spread = f"{seconds_text(seconds.min)} to {seconds_text(seconds.max)}"
        numbers.append(("one step", seconds_text(seconds.median), spread))
    with st.container(horizontal=True, key=f"{key}-headline"):
        for name, value, against in numbers:
            with st.container(width="content", gap=None):
                st.caption(name)
                st.markdown(f"### {value}")
                st.caption(against)


def _first_answer(result: MemoryResult, found: Extrapolation, key: str) -> None:
    """What few blocks say of all, while these are being predicted."""
    st.text(extrapolation_text(found))
    moment = charts.Moment("at the peak", found.peak_bytes, found.phase, found.categories)
    st.altair_chart(charts.peaks_chart([moment], theme()), key=f"{key}-first", width="stretch")


def extrapolation_text(found: Extrapolation) -> str:
    """How a peak was told from few blocks, and whether all of them agree."""
    depths = ", ".join(str(depth) for depth in found.depths[:-1]) + f" and {found.depths[-1]}"
    text = (
        f"From {depths} of {found.blocks} equal blocks: every further block adds the same bytes to every category of every "
        f"phase. For all blocks that gives {bytes_text(found.peak_bytes)} with {found.parameters:,} parameters."
    )
    if found.confirmed is None:
        return text
    return f"{text} The prediction of all blocks {'agrees to the byte' if found.confirmed else 'differs'}."


def _cut(name: str, most: int = 24) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _timeline(result: MemoryResult, key: str, presenter: bool) -> None:
    memory_view(result, key=key, height=780, presenter=presenter)


def _settings(result: MemoryResult, key: str, presenter: bool) -> None:
    if not any(run.peak_bytes for run in result.runs):
        st.text(_no_settings(result))
        return
    st.altair_chart(charts.peaks_chart(charts.peaks_of(result.runs), theme()), key=f"{key}-peaks", width="stretch")
    st.altair_chart(charts.curves_chart(charts.curves_of(result.runs), theme()), key=f"{key}-curves", width="stretch")
    draw_table([_run_row(run) for run in result.runs], RUNS, f"{key}-runs", "Nothing was compared.")


def _no_settings(result: MemoryResult) -> str:
    if result.fault:
        return "The run ended early, so no other setting was set beside it."
    if result.skipped:
        return f"No other setting was set beside it. {result.skipped[0].reason}"
    return "Nothing was compared." if result.complete else "Other settings are not measured yet."


def _run_row(run: Run) -> dict[str, Any]:
    seconds = run.step_s
    if run.peak_bytes is None:
        return {"setting": run.setting, "peak": f"failed: {run.failed}"}
    return {
        "setting": charts.setting_text(run),
        "peak": short_bytes_text(run.peak_bytes),
        "bytes": run.peak_bytes,
        "falls in": f"{phase_text(run.peak_phase)}, {run.peak_op}",
        "step": seconds_text(seconds.median) if seconds else "not measured",
        "spread": f"{seconds_text(seconds.min)} to {seconds_text(seconds.max)}" if seconds else "",
        "saved": bytes_text(run.saved_bytes),
        "recomputed operations": run.recomputed_ops,
        "operations": run.operations,
        "left behind": bytes_text(run.growth_bytes),
    }


def _saved(result: MemoryResult, key: str, presenter: bool) -> None:
    if not any(tensor.holds == "saved" for tensor in result.saved):
        st.text("Autograd keeps nothing here: gradients are switched off, or everything is recomputed.")
        return
    st.altair_chart(charts.saved_chart(result.saved, theme()), key=f"{key}-chart", width="stretch")
    recomputed = sum(not tensor.kept for tensor in result.saved)
    st.caption(
        f"{len(result.saved)} slots, {recomputed} of them placeholders that are recomputed. "
        f"Distinct storages that only autograd keeps: {bytes_text(result.saved_bytes)}."
    )
    draw_table([_saved_row(tensor) for tensor in result.saved], SAVED, f"{key}-table", "Nothing is saved.")


def _saved_row(tensor: SavedTensor) -> dict[str, Any]:
    return {
        **{name: getattr(tensor, name) for name in ("module", "operation", "slot", "dtype", "bytes", "storage")},
        "shape": "" if tensor.shape is None else str(list(tensor.shape)),
        "storage bytes": tensor.storage_bytes,
        "holds": CATEGORY_TEXTS.get(tensor.holds, tensor.holds),
        "kept": "kept" if tensor.kept else "recomputed",
    }


def _plan(result: MemoryResult, key: str, presenter: bool) -> None:
    draw_plan(result, theme(), key, presenter)


def _fit(result: MemoryResult, key: str, presenter: bool) -> None:
    fit, prediction = result.fit, result.prediction
    verdict = "fits" if fit.fits else "does not fit"
    st.markdown(f"#### {short_bytes_text(fit.peak_bytes)} {verdict} on a card with {short_bytes_text(fit.card_bytes)}")
    st.caption(
        f"For the kernels of {fit.device}. A CUDA card also holds the context, workspaces and rounding to blocks, "
        "so leave a margin."
    )
    chart = charts.changes_chart(result.changes, result.peak.bytes, fit.card_bytes, theme())
    st.altair_chart(chart, key=f"{key}-changes", width="stretch")
    draw_fit(fit, result.changes, key)
    if prediction:
        st.caption(_agreement(prediction))
        if not result.predicted:
            measured = Curve(result.timeline.index, tuple(result.timeline.totals()))
            both = {"measured": measured, "predicted": prediction.curve}
            st.altair_chart(charts.curves_chart(both, theme()), key=f"{key}-agreement", width="stretch")
    elif result.prediction_reason:
        st.caption(f"No prediction: {result.prediction_reason}")


def _agreement(prediction: Prediction) -> str:
    if prediction.largest_gap_bytes is not None:
        return (
            f"Predicted on tensors without data: {bytes_text(prediction.peak_bytes)}. Both ran the same operations; the largest "
            f"difference at any of them is {bytes_text(prediction.largest_gap_bytes)}."
        )
    if prediction.same_operations is False:
        return (
            f"Predicted on tensors without data: {bytes_text(prediction.peak_bytes)}. The real run took other operations "
            "(a fused kernel of this CPU), so only the peaks can be compared."
        )
    return "Nothing was run: every number here is predicted on tensors without data."


def _out_of_memory(result: MemoryResult, key: str, presenter: bool) -> None:
    if result.message:
        draw_message(result.message, key)
    _cap_hit(result, key)
    draw_rulers(result.allocator_models, theme(), key)
    draw_differences(result.on_cuda, result.peak.bytes, key)


def _no_cap_hit(result: MemoryResult) -> str:
    skipped = next((left for left in result.skipped if left.name == OOM), None)
    if skipped:
        return f"Not tried. {skipped.reason}"
    if result.fault:
        return "The run ended early, so it was not run under a cap."
    return "The whole training fits under this cap. Set a smaller cap." if result.complete else "Not run yet."


def _cap_hit(result: MemoryResult, key: str) -> None:
    hit = result.oom
    if hit is None:
        st.text(_no_cap_hit(result))
        return
    st.markdown(f"#### {hit.op} asked for {short_bytes_text(hit.request_bytes)} and did not get it")
    place = f"{phase_text(hit.phase)} of step {hit.step + 1}, in {hit.module}"
    line = f", line {hit.line}" if hit.line else ""
    st.text(
        f"Under a cap of {bytes_text(hit.cap_bytes)}: operation {hit.index:,} ({place}{line}) asked for a tensor "
        f"{hit.shape} {hit.dtype} of {bytes_text(hit.request_bytes)} while {bytes_text(hit.alive_bytes)} were alive."
    )
    at_failure = charts.Moment("alive when it failed", hit.alive_bytes, hit.phase, hit.categories)
    st.altair_chart(
        charts.peaks_chart([at_failure], theme(), "bytes alive when the request came"),
        key=f"{key}-alive",
        width="stretch",
    )
    st.text(
        f"Kept alive by the caught exception alone, through its traceback: {bytes_text(hit.held_by_exception_bytes)}. "
        f"After letting go of it {bytes_text(hit.after_bytes)} are left. Retry outside the except block."
    )
    st.caption(
        "The cap counts what the dispatcher sees; the training stops at the first request beyond it. "
        "A real card fails a little earlier: it also holds a context, workspaces and rounding."
    )
    st.markdown("**What to change first**")
    st.altair_chart(
        charts.changes_chart(result.changes, result.peak.bytes, hit.cap_bytes, theme()),
        key=f"{key}-changes", width="stretch",
    )  # fmt: skip
    draw_table(owners_rows(hit.owners), OWNERS, f"{key}-owners", "Nothing was alive.")


def owners_rows(owners: Sequence[Owner]) -> list[dict[str, Any]]:
    """The largest owners as table rows."""
    return [
        {"category": CATEGORY_TEXTS[o.category], "module": o.module, "operation": o.op or o.name, "tensors": o.count,
         "size": short_bytes_text(o.bytes), "bytes": o.bytes}
        for o in owners
    ]  # fmt: skip


def draw_details(result: MemoryResult, key: str) -> None:
    """Tables behind the figure."""
    if not result.timeline.index:
        return
    st.caption(cost_text(result))
    if result.extrapolation:
        st.caption(extrapolation_text(result.extrapolation))
    if result.skipped:
        with st.expander(f"{len(result.skipped)} comparisons did not fit the time"):
            rows = [{"left out": left.name, "why": left.reason} for left in result.skipped]
            draw_table(rows, {"left out": "", "why": "Priced by the runs before it."}, f"{key}-skipped", "")
    names = ["Owners at the peak", "Operations and dtypes", "What nobody sees", "Allocated, reserved, driver"]
    owners, dtypes, unseen, allocator = st.tabs(names)
    with owners:
        draw_table(owners_rows(result.peak.owners), OWNERS, f"{key}-peak-owners", "Nothing was alive.")
    with dtypes:
        rows = [{"operation": d.op, "output dtype": d.dtype, "tensors": d.count} for d in result.dtypes]
        draw_table(rows, DTYPES, f"{key}-dtypes", "No forward ran.")
    with unseen:
        st.text(_unseen_text(result))
    with allocator:
        _allocator(result, key)


def _unseen_text(result: MemoryResult) -> str:
    if result.unseen_bytes is None:
        return f"Not measured. {result.unseen_reason}"
    table = result.timeline
    if table.unseen is None:
        size = bytes_text(result.unseen_bytes)
        return f"The allocator's peak of requested bytes is {size} above the tracked one. Both peaks may fall at other moments."
    row = max(range(len(table.unseen)), key=table.unseen.__getitem__)
    where = f", at {table.op[row]} in {table.module[row]}" if result.unseen_bytes else ""
    at_peak = table.unseen[result.peak.row]
    return (
        f"The allocator held up to {bytes_text(result.unseen_bytes)} that the dispatcher does not see{where}; "
        f"{bytes_text(at_peak)} at the peak, which counts them. Workspaces inside a kernel, packed weights, random-number "
        f"states, put on the operation that asked for them. {_bare_text(result)}"
    )


def _bare_text(result: MemoryResult) -> str:
    bare = result.bare_peak_bytes
    if bare is None:
        return ""
    gap = result.peak.bytes - bare
    beside = "the same" if gap == 0 else f"{bytes_text(abs(gap))} {'less' if gap > 0 else 'more'}"
    return f"Run once more without the instrument, the allocator's peak was {bytes_text(bare)}: {beside}."


def _allocator(result: MemoryResult, key: str) -> None:
    found = result.allocator
    if found is None:
        st.text(f"Not measured. {result.allocator_reason}")
        st.text(
            "On a CPU build torch.cuda.memory_allocated() answers 0 without a word; that 0 is not a measurement. "
            "torch.cuda.empty_cache() gives cached blocks back to the driver for other programs: it frees no tensor that is alive."
        )
        return
    rows = [{"part": name, "size": short_bytes_text(size), "bytes": size} for name, size in found.lines.items()]
    helps = {"part": "The four lines sum to what is reserved.", "size": "", "bytes": ""}
    draw_table(rows, helps, f"{key}-allocator", "")
    if found.fragmentation:
        st.text(fragmentation_text(found.fragmentation))
    st.text(f"The driver counts {bytes_text(found.driver_bytes)} in use on the device, other processes included.")
    if found.snapshot:
        st.download_button(
            "Allocator snapshot for PyTorch's memory viewer", zlib.decompress(base64.b64decode(found.snapshot)),
            "memory_snapshot.pickle", key=f"{key}-snapshot", on_click="ignore", icon=":material/download:",
        )  # fmt: skip


def cost_text(result: MemoryResult) -> str:
    """What the instrument costs, as a number."""
    if not result.step_s or not result.tracked_step_s:
        return "Times come from runs without the instrument."
    ratio = result.tracked_step_s / result.step_s.median
    return f"A tracked step took {ratio:.1f} times as long as a bare one. Times come from runs without the instrument."
