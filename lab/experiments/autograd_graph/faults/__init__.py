"""Why a program ended early: read from the record of this run where that shows it, else from the table of all pages.

passes     errors of the backward engine: what was overwritten, freed, not on the way, no scalar
functions  custom functions and hooks, which the engine calls
operands   an operation that was refused, with the shapes, dtypes and numbers it was given
leaves     tensors that are no leaf, or must stay one; NumPy; optimizers
modules    classes of the program: a forward or an ``__init__`` that is missing, what it returns, what it hides
"""

from __future__ import annotations

import logging

from lab.contract import Fault
from lab.experiments.autograd_graph.faults import functions, leaves, modules, operands, passes
from lab.experiments.autograd_graph.findings.record import Explained, Record, site
from lab.experiments.autograd_graph.schema import Result
from lab.program.explain import explain_fault
from lab.records.program import Ended

_LOOKS = (passes.explain, functions.explain, leaves.explain, operands.explain, modules.explain)


def fault_of(ended: Ended | None, result: Result) -> Fault | None:
    """The fault of a program that ended early, with its cause where the record shows it."""
    if ended is None:
        return None
    plain = explain_fault(ended)
    why = explain(Record(result), ended.type, ended.message, ended.line)
    if why is None:
        return Fault(
            ended.type, ended.message, ended.line, plain.explanation, plain.repair, site(ended.line, "fails here")
        )
    return Fault(ended.type, ended.message, ended.line, why.text, why.repair or plain.repair, why.sites)


def explain(record: Record, kind: str, message: str, line: int | None) -> Explained | None:
    """The cause as the record shows it; None where it shows none."""
    ended = Ended(kind, message, line)
    for look in _LOOKS:
        try:
            why = look(record, ended)
        except Exception:
            logging.getLogger(__name__).exception("%s was not explained", kind)
            continue
        if why is not None:
            return why
    return None
