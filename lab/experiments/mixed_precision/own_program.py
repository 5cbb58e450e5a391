"""A visitor's program: the dtype of each operation by line, and what few bits did to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from lab.contract import Fault, Report, Site
from lab.experiments.mixed_precision.dtype_trace import DtypeTrace
from lab.experiments.mixed_precision.precision_watch import PrecisionWatch
from lab.experiments.mixed_precision.schema import Params, Result
from lab.program import run as program
from lab.program.explain import explain_fault
from lab.program.lines import program_tree
from lab.records.precision import Trouble
from lab.records.program import Warned

_SHARE = 0.7
_FEW = 0.05
"""Share of weights with a gradient that moved, below which updates count as lost."""
_IN_A_ROW = 5


def run_own(params: Params, report: Report) -> Result:
    """Faults of the program do not raise: they are in ``fault``."""
    report(0.0, "running the program")
    with program.torch_defaults(params.seed, params.device):
        watch = PrecisionWatch()
        trace = DtypeTrace(lambda: watch.still_scaled() is not None)
        with watch, trace:
            ran = program.run_typed(params, share=_SHARE, names=program.namespace())
        torch.clear_autocast_cache()
        said = ran.said
        fault = _placed(explain_fault(ran.ended), trace) if ran.ended else None
        return Result(
            view="ops", ops=tuple(trace.kinds.values()), troubles=tuple(_troubles(watch, trace, said.warned)),
            values=_numbers(ran.namespace), code=params.code, fault=fault, **said.fields(),
        )  # fmt: skip


def _placed(fault: Fault, trace: DtypeTrace) -> Fault:
    """With the line that the message does not name: where weights became half, or where 16 bits came from."""
    here = Site(fault.line, "fails here") if fault.line else None
    if "unscale FP16 gradients" in fault.message:
        line = _line_of_half()
        sites = (Site(line, "weights became float16 here"), here) if line else (here,)
        return replace(fault, sites=tuple(site for site in sites if site))
    if "same dtype" in fault.message and here:
        low = Site(trace.low_line, "16 bits since here") if trace.low_line and trace.low_line != fault.line else None
        told = (
            f"{fault.explanation} Leaving autocast does not cast back what came before: what line {trace.low_line} made still has 16 bits."
            if low
            else fault.explanation
        )
        repair = "Cast it where the region is left: h.float()." if low else fault.repair
        return replace(
            fault, sites=tuple(site for site in (here, low) if site), explanation=told.strip(), repair=repair
        )
    return fault


def _line_of_half() -> int | None:
    """The first line that makes something half, or casts to float16."""
    for node in ast.walk(program_tree()):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
            if node.func.attr == "half" or (node.func.attr == "to" and named & {"float16", "half"}):
                return node.lineno
    return None


def _troubles(watch: PrecisionWatch, trace: DtypeTrace, warned: tuple[Warned, ...]) -> Iterator[Trouble]:
    yield from _nonfinite(trace)
    for stale in trace.stale[:1]:
        yield Trouble(
            "stale cast",
            stale.changed_line or stale.used_line,
            stale.used_line,
            "",
            float(stale.cast_line),
            0.0,
            str(list(stale.shape)),
        )
    for past in watch.past[:1]:
        yield Trouble("stepped past the scaler", past[0], None, "", past[1], float(len(watch.past)))
    for clip in watch.clipped[:1]:
        yield Trouble("clipped while scaled", clip.line, None, "", clip.scale, clip.norm)
    for lost in watch.lost.values():
        if lost.eps_zero:
            yield Trouble("eps is zero", lost.line, None, lost.dtype, 0.0, 0.0)
        elif lost.asked and lost.moved < _FEW * lost.asked and lost.lr:
            yield Trouble(
                "lost update", lost.line, None, lost.dtype, lost.moved / lost.asked, float(lost.steps), f"{lost.lr:g}"
            )
    for warning in warned:
        if "Disabling autocast" in warning.text or "Disabling auto" in warning.text:
            yield Trouble("autocast off", warning.line or 0, None, "", 0.0, 0.0, warning.text.split(".")[0][:200])
            break
    yield from _skips(watch)


def _nonfinite(trace: DtypeTrace) -> Iterator[Trouble]:
    """The first overflow, and the first NaN of another line."""
    overflow = next((n for n in trace.nonfinite if n.kind == "overflow"), None)
    nan = next((n for n in trace.nonfinite if n.kind == "nan"), None)
    if overflow:
        largest = float(torch.finfo(getattr(torch, overflow.dtype)).max)
        yield Trouble(
            "overflow", overflow.line, nan.line if nan else None, overflow.op, overflow.exact, largest, overflow.dtype
        )
    if nan:
        yield Trouble(
            "nan", nan.line, overflow.line if overflow else None, nan.op, float(nan.of_infinite), 0.0, nan.dtype
        )


def _skips(watch: PrecisionWatch) -> Iterator[Trouble]:
    for story in watch.scalers.values():
        if not any(story.skipped):
            continue
        longest = row = 0
        for skipped in story.skipped:
            row = row + 1 if skipped else 0
            longest = max(longest, row)
        endless = longest >= _IN_A_ROW and story.skipped[-1]
        yield Trouble(
            "skips for ever" if endless else "skips", story.line, None, "", float(sum(story.skipped)), float(len(story.skipped)),
            f"{float(story.scaler.get_scale()):g}",
        )  # fmt: skip


def _numbers(names: dict[str, Any]) -> dict[str, float]:
    """Plain numbers and truth values that the program left, also those in a dict called result."""
    found = {k: v for k, v in names.items() if not k.startswith("_")}
    inner = names.get("result")
    if isinstance(inner, dict):
        found |= {k: v for k, v in inner.items() if isinstance(k, str)}
    return {k: float(v) for k, v in found.items() if type(v) in (bool, int, float)}
