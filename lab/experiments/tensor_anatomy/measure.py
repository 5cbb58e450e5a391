"""Run the program and read its tensors, or measure one of the panels."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable

from lab.contract import Report
from lab.experiments.tensor_anatomy.faults import caught, fault_of
from lab.experiments.tensor_anatomy.panels import data, devices, numpy_bridge, precision, promotion
from lab.experiments.tensor_anatomy.schema import Params, Result
from lab.experiments.tensor_anatomy.watch import assemble
from lab.experiments.tensor_anatomy.watch.checks import ProgramChecks
from lab.experiments.tensor_anatomy.watch.tensor_trace import TensorTrace
from lab.instruments.describing.assigned import assigned_names
from lab.program import run as program
from lab.torch_private import require

NEEDED = ("storages", "versions", "quiet subclasses", "function transforms", "data reads")


def run(params: Params, report: Report) -> Result:
    """The view that was asked for, and nothing else. Faults of the program do not raise: they are in ``fault``."""
    require(*NEEDED)
    return _PANELS.get(params.view, _program)(params, report)


def _program(params: Params, report: Report) -> Result:
    report(0.0, "running the program")
    names = program.namespace()
    kept: list[ProgramChecks] = []

    def checks(trace: TensorTrace) -> ProgramChecks:
        kept.append(ProgramChecks(trace))
        return kept[0]

    with program.torch_defaults(params.seed, params.device):
        trace = TensorTrace(program.FILE, names, checks)
        started = time.perf_counter()
        with trace:
            ran = program.run_typed(params, share=0.8, names=names)
        seconds = time.perf_counter() - started
        report(0.7, "reading the tensors")
        result = _read(params, trace, kept[0], ran, seconds)
    if trace.broken:
        raise RuntimeError("the tensors could not be recorded") from trace.broken
    return result


def _read(params: Params, trace: TensorTrace, checks: ProgramChecks, ran: program.Ran, seconds: float) -> Result:
    ended = trace.finish()
    lines = assemble.line_records(trace, assigned_names(params.code))
    bindings, places = assemble.binding_records(trace)
    pieces = {state.storage for state in ended.values() if state.storage is not None}
    tree = _tree(params.code)
    return Result(
        view=params.view,
        lines=lines,
        lines_cut=max(0, trace.made - len(lines)) + trace.skipped,
        storages=assemble.storage_records(trace, lines, ran.namespace, ended),
        strips=assemble.strip_records(ended),
        places=places,
        bindings=bindings,
        refusals=assemble.refusal_records(trace.refusals),
        einsums=tuple(checks.einsums),
        notes=(*checks.finish(tree, ran.namespace, ended), *caught(ran.ended, trace.refusals, params.code)),
        names=len(ended),
        pieces=len(pieces),
        copied_bytes=sum(line.new_bytes for line in lines if line.op in assemble.COPIES),
        new_bytes=sum(line.new_bytes for line in lines),
        **ran.said.fields(),
        device=params.device,
        seconds=seconds,
        code=params.code,
        variables=program.variables(ran.namespace),
        fault=fault_of(ran.ended, trace.refusals, params.code),
    )


def _tree(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


_PANELS: dict[str, Callable[[Params, Report], Result]] = {
    "promotion": promotion.measure,
    "precision": precision.measure,
    "numpy": numpy_bridge.measure,
    "devices": devices.measure,
    "data": data.measure,
}
