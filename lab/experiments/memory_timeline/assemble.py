"""From tracked runs to the result."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from lab.experiments.memory_timeline.holder_lines import line_of
from lab.experiments.memory_timeline.schema import Params, Result
from lab.experiments.memory_timeline.settings import Setting
from lab.experiments.memory_timeline.subject import SubjectError
from lab.experiments.memory_timeline.tracking import Tracked
from lab.instruments.memory.timeline import lives, peak, thinned, timeline
from lab.records.memory import (
    CATEGORIES,
    Allocator,
    Change,
    Curve,
    Extrapolation,
    Fit,
    Lives,
    OpDtype,
    Peak,
    PhasePeak,
    Prediction,
    Run,
    Seconds,
    Storages,
    Timeline,
)
from lab.records.program import SILENT

_CURVE_POINTS = 400


def result(
    params: Params,
    chosen: Tracked,
    *,
    predicted: bool,
    time_reason: str,
    **parts: Any,
) -> Result:
    """The whole result; ``parts`` are the fields that are ready."""
    book = chosen.reading
    code = params.code if params.model == "own" else ""
    rows = thinned(book)
    table = timeline(book, rows)
    if chosen.book.for_allocator:
        table = replace(table, unseen=table.workspaces)
    alive, storages = lives(book, rows)
    highest = peak(book, rows)
    return Result(
        timeline=table,
        lives=alive,
        storages=storages,
        peak=highest,
        phase_peaks=_phase_peaks(chosen),
        start=book.categories(rows[0][1]),
        end=book.categories(-1),
        step_ends=tuple(book.totals[event] for event in chosen.step_ends),
        operations=len(book.operations),
        recomputed_ops=chosen.recomputed_ops,
        parameters=chosen.parameters,
        frozen=chosen.frozen,
        frozen_gradient_bytes=chosen.frozen_gradient_bytes,
        without_gradient=chosen.without_gradient,
        segments=chosen.segments,
        predicted=predicted,
        assumed_scalars=chosen.book.assumed_scalars,
        saved=tuple(chosen.saved),
        saved_bytes=chosen.saved_bytes,
        kept=tuple(replace(row, name_line=line_of(code, row.name)) for row in chosen.kept),
        dtypes=_dtypes(chosen),
        unseen_bytes=_unseen_bytes(table, parts["allocator"]),
        tracked_step_s=None if predicted else chosen.seconds / params.steps,
        step_s_reason="A prediction takes no time."
        if predicted
        else "The run ended early."
        if chosen.fault
        else time_reason,
        fit=parts.pop("fit") or fit_of(params, highest.bytes),
        allocator_reason=_allocator_reason(params, predicted),
        **chosen.said.fields(),
        device=params.device,
        fault=chosen.fault,
        **parts,
    )


def fit_of(params: Params, peak_bytes: int, **more: Any) -> Fit:
    """Does a peak fit on the card?"""
    return Fit(params.card_bytes, peak_bytes, peak_bytes <= params.card_bytes, params.device, **more)


def _unseen_bytes(table: Timeline, allocator: Allocator | None) -> int | None:
    """From the allocator's events on the CPU, from its own count on CUDA."""
    if allocator:
        return allocator.requested_bytes - allocator.tracked_bytes
    return None if table.unseen is None else max(table.unseen, default=0)


def nothing(params: Params, error: SubjectError) -> Result:
    """The result of a program that leaves nothing to train."""
    none: dict[str, int] = dict.fromkeys(CATEGORIES, 0)
    highest = Peak(0, -1, 0, "", "", "", 0, none, ())
    return replace(_bare_result(params, highest, "There was nothing to run.", error), complete=True)


def first_answer(params: Params, found: Extrapolation) -> Result:
    """What is known of a deep model before all of its blocks have been predicted."""
    highest = Peak(found.peak_bytes, -1, 0, "", found.phase, "", found.step, found.categories, ())
    early = _bare_result(params, highest, "The prediction of all blocks is not there yet.", None)
    return replace(
        early, predicted=True, parameters=found.parameters, phase_peaks=found.phase_peaks, extrapolation=found
    )


def _bare_result(params: Params, highest: Peak, reason: str, error: SubjectError | None) -> Result:
    """Without a timeline."""
    none: dict[str, int] = dict.fromkeys(CATEGORIES, 0)
    return Result(
        timeline=Timeline(*([()] * (6 + len(CATEGORIES)))),
        lives=Lives(*([()] * 5)),
        storages=Storages(*([()] * 7)),
        peak=highest,
        start=none,
        end=none,
        fit=fit_of(params, highest.bytes),
        **(error.ran.said if error else SILENT).fields(),
        device=params.device,
        fault=error.fault if error else None,
        predicted=params.predict,
        **dict.fromkeys(
            (
                "phase_peaks",
                "step_ends",
                "runs",
                "changes",
                "saved",
                "dtypes",
                "kept",
                "skipped",
                "allocator_models",
                "on_cuda",
            ),
            (),
        ),
        **dict.fromkeys(
            (
                "operations",
                "recomputed_ops",
                "parameters",
                "frozen",
                "frozen_gradient_bytes",
                "without_gradient",
                "segments",
                "assumed_scalars",
            ),
            0,
        ),
        **dict.fromkeys(
            ("unseen_reason", "step_s_reason", "prediction_reason", "allocator_reason", "plan_reason"), reason
        ),
        **dict.fromkeys(
            (
                "unseen_bytes",
                "bare_peak_bytes",
                "step_s",
                "tracked_step_s",
                "prediction",
                "extrapolation",
                "oom",
                "allocator",
                "message",
                "plan",
            ),
            None,
        ),
        saved_bytes=0,
        predicted_reason="",
        complete=False,
    )


def _phase_peaks(chosen: Tracked) -> tuple[PhasePeak, ...]:
    found: dict[tuple[int, str], int] = {}
    for op, event in chosen.reading.instants[1:]:
        operation = chosen.reading.operations[op]
        key = operation.step, operation.phase
        found[key] = max(found.get(key, 0), chosen.reading.totals[event])
    return tuple(PhasePeak(step, phase, size) for (step, phase), size in found.items())


def _dtypes(chosen: Tracked) -> tuple[OpDtype, ...]:
    """Of what the forward operations of the last step made anew."""
    made = Counter(
        (storage.op_name, storage.dtype)
        for storage in chosen.reading.storages
        if storage.phase == "forward" and storage.step == len(chosen.step_ends) - 1
    )
    return tuple(OpDtype(op, dtype, count) for (op, dtype), count in sorted(made.items()))


def _allocator_reason(params: Params, predicted: bool) -> str:
    if params.device == "cpu":
        return "No CUDA device in this run: allocated and reserved memory need one."
    return "A prediction has no allocator." if predicted else ""


def curve(tracked: Tracked) -> Curve:
    """Total over operations, thinned."""
    rows = thinned(tracked.reading, _CURVE_POINTS)
    return Curve(tuple(op for op, _ in rows), tuple(tracked.reading.totals[event] for _, event in rows))


def prediction(predicted: Tracked, measured: Tracked | None) -> Prediction:
    """The prediction, held against the measurement where there is one."""
    same = gap = None
    if measured is not None:
        same = [o.name for o in predicted.reading.operations] == [o.name for o in measured.reading.operations]
        if same:
            pairs = zip(predicted.seen, measured.seen, strict=True)
            gap = max(abs(a - b) for a, b in pairs)
    return Prediction(predicted.peak_bytes, curve(predicted), same, gap, predicted.book.assumed_scalars)


def run_row(setting: Setting, tracked: Tracked, chosen: bool, predicted: bool, seconds: Seconds | None) -> Run:
    """One setting as a row."""
    book = tracked.reading
    highest = peak(book, book.instants)
    failed = f"{tracked.fault.type}: {tracked.fault.message}"[:300] if tracked.fault else ""
    ends = [book.totals[event] for event in tracked.step_ends]
    return Run(
        setting.name,
        setting.knobs,
        setting.square_root,
        chosen,
        predicted,
        None if failed else highest.bytes,
        highest.phase,
        highest.op,
        highest.module,
        highest.categories,
        tracked.saved_bytes,
        len(book.operations),
        tracked.recomputed_ops,
        tracked.segments,
        ends[-1] - ends[-2] if len(ends) > 1 else 0,
        seconds,
        curve(tracked),
        failed,
    )


def change(setting: Setting, peak_bytes: int, chosen: Tracked, card_bytes: int, *, measured: bool) -> Change:
    """What the peak becomes."""
    saving = chosen.peak_bytes - peak_bytes
    return Change(setting.name, setting.knobs, peak_bytes, saving, measured, peak_bytes <= card_bytes)
