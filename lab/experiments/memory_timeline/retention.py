"""Findings about what stays alive although nobody needs it: graphs, gradients, bases of views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from lab.contract import Finding
from lab.experiments.memory_timeline.readings import run_with
from lab.experiments.memory_timeline.schema import Result
from lab.experiments.memory_timeline.words import LAST_LOSS, module_text
from lab.quantities import bytes_text
from lab.records.memory import SavedTensor

_GRAPH = 64
"""A step that grows by more than this keeps more than a loss."""
_VIEW = 4
"""A view that keeps at least so many times its own size."""


def _retained(result: Result) -> Iterator[Finding]:
    rows = zip(result.timeline.phase, result.timeline.saved, strict=True)
    held = max((saved for phase, saved in rows if phase == "optimizer"), default=0)
    if held <= _GRAPH or not any(row.holds == "graph" and row.name == LAST_LOSS for row in result.kept):
        return
    without = next((c for c in result.changes if c.knobs == {"retain_graph": False}), None)
    evidence = {"saved during the optimizer step_bytes": held}
    if without:
        evidence |= {"peak_bytes": result.peak.bytes, "peak without_bytes": without.peak_bytes}
    text = "The graph is kept after backward, until the next loss takes the name of this one: through the optimizer step and into the next forward."
    yield Finding(
        level="warning", title="The graph outlives backward", text=text, evidence=evidence, repair="Leave retain_graph=True out.",
        change={"retain_graph": False},
    )  # fmt: skip


def _forgot(result: Result) -> Iterator[Finding]:
    forgot, clean = run_with(result, mode="forgot"), run_with(result, mode="no_grad")
    if forgot and clean and forgot.peak_bytes and clean.peak_bytes and forgot.peak_bytes > clean.peak_bytes:
        text = "Without no_grad the forward saves everything for a backward that never comes."
        if len(result.step_ends) > 1:
            text += " The loss of the step before holds its graph until the new one takes the name, so two graphs are alive at once."
        evidence = {"forgotten_bytes": forgot.peak_bytes, "no_grad_bytes": clean.peak_bytes}
        yield Finding(
            level="warning" if forgot.chosen else "fact", title="Evaluating with gradients on keeps the graph", text=text, evidence=evidence,
            repair="with torch.no_grad(): around the evaluation.", change={"mode": "no_grad"},
        )  # fmt: skip


def _accumulation(result: Result) -> Iterator[Finding]:
    whole, joined = run_with(result, accumulate=1), run_with(result, one_backward=True)
    each = next((r for r in result.runs if r.knobs == {"one_backward": False}), None)
    if not (whole and each and joined and whole.peak_bytes and each.peak_bytes and joined.peak_bytes):
        return
    evidence = {
        "whole batch_bytes": whole.peak_bytes,
        "backward for each_bytes": each.peak_bytes,
        "one backward_bytes": joined.peak_bytes,
    }
    if each.peak_bytes > whole.peak_bytes:
        text = (
            f"Saved activations fall from {bytes_text(whole.saved_bytes)} to {bytes_text(each.saved_bytes)}, but from the second "
            "micro-batch on each gradient is computed beside the one it is added to, and the gradients stay alive meanwhile."
        )
        yield Finding(level="surprise", title="Accumulation raises this peak", text=text, evidence=evidence)
    else:
        text = "A backward for each micro-batch frees its graph before the next one is built."
        yield Finding(
            level="fact",
            title="Accumulation lowers the peak, if each micro-batch has its backward",
            text=text,
            evidence=evidence,
        )
    if joined.chosen:
        yield Finding(
            level="warning", title="All graphs are alive at once",
            text="The losses were added and backward was called once, so every micro-batch keeps its graph until the end.",
            evidence=evidence, repair="Call backward for each micro-batch; the gradients are the same.", change={"one_backward": False},
        )  # fmt: skip


def _gradients_in_forward(result: Result) -> Iterator[Finding]:
    table = result.timeline
    late = [
        g
        for g, phase, step in zip(table.gradients, table.phase, table.step, strict=True)
        if phase == "forward" and step
    ]
    change = {"set_to_none": True, "zero_grad": "before_forward"}
    better = next((c for c in result.changes if c.knobs == change), None)
    if late and min(late) > 0 and better and better.saving_bytes > 0:
        text = (
            "The gradients of the step before are still there while the next forward fills the memory with activations."
        )
        evidence = {
            "gradients in forward_bytes": min(late),
            "peak_bytes": result.peak.bytes,
            "cleared first_bytes": better.peak_bytes,
        }
        yield Finding(
            level="surprise", title="Old gradients stay through the forward", text=text, evidence=evidence,
            repair="optimizer.zero_grad(set_to_none=True) before the forward.", change=change,
        )  # fmt: skip


def _views(result: Result) -> Iterator[Finding]:
    """Of a storage that only autograd keeps, all views together need but a small part."""
    slots: dict[int, list[SavedTensor]] = defaultdict(list)
    for row in result.saved:
        if row.holds == "saved" and row.storage is not None:
            slots[row.storage].append(row)
    wide = [rows for rows in slots.values() if _kept_in_vain(rows) >= 1 << 16]
    if wide:
        rows = max(wide, key=_kept_in_vain)
        row, size = rows[0], sum(row.bytes or 0 for row in rows)
        text = (
            f"{row.operation} of {module_text(row.module)} saved {row.slot} with {bytes_text(row.bytes or 0)}. It is a view, and a view "
            f"keeps its whole storage of {bytes_text(row.storage_bytes or 0)}, of which backward reads nothing else."
        )
        evidence = {"view_bytes": size, "storage_bytes": row.storage_bytes}
        yield Finding(
            level="surprise",
            title="A small view keeps a large tensor",
            text=text,
            evidence=evidence,
            repair="Copy the part: x[...].clone().",
        )


def _kept_in_vain(rows: list[SavedTensor]) -> int:
    size, whole = sum(row.bytes or 0 for row in rows), rows[0].storage_bytes or 0
    return whole - size if whole >= _VIEW * max(size, 1) else 0


LOOKS: tuple[Callable[[Result], Iterator[Finding]], ...] = (
    _retained,
    _forgot,
    _accumulation,
    _gradients_in_forward,
    _views,
)
