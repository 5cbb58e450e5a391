"""Why a program ended early: read from the record of this run where that shows it, else from the table of all pages."""

from __future__ import annotations

from lab.contract import Fault
from lab.experiments.module_anatomy.causes import cause_of
from lab.experiments.module_anatomy.schema import Result
from lab.program.explain import explain_fault
from lab.records.program import Ended


def fault_of(ended: Ended, result: Result) -> Fault:
    """The fault with its cause."""
    plain = explain_fault(ended)
    why = cause_of(result, ended.type, ended.message, ended.line)
    if why is None:  # without sites: this record names no cause
        return Fault(ended.type, ended.message, ended.line, plain.explanation, plain.repair)
    return Fault(ended.type, ended.message, ended.line, why.text, why.repair or plain.repair, why.sites)
