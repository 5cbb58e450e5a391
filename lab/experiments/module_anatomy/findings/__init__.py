"""What to notice: each sentence hangs on what was found in this run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lab.contract import Edit, Finding, by_level
from lab.experiments.module_anatomy.causes import cause_of
from lab.experiments.module_anatomy.findings import actions, calls, hooks, marks, sharing, state, unregistered
from lab.experiments.module_anatomy.schema import Result

MOST = 5


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST``, the most pressing first; the cause of a fault before everything."""
    found = [_with_trial(finding, result) for finding in by_level(_found(result))]
    return tuple(found[:MOST])


def _found(result: Result) -> Iterator[Finding]:
    if result.fault:
        cause = cause_of(result, result.fault.type, result.fault.message, result.fault.line)
        if cause:
            yield cause.finding(result.fault.line)
    if result.view == "state dict":
        yield from state.loading(result)
    if result.view == "hooks":
        yield from hooks.order(result)
    yield from actions.done(result)
    blamed = set(_lines_of_fault(result))
    for look in (unregistered.hanging, sharing.shared, calls.asked, hooks.registered, marks.measured):
        for finding in look(result):
            if not (result.fault and finding.line in blamed and finding.edits):
                yield finding


def _lines_of_fault(result: Result) -> Iterator[int]:
    """Lines whose repair stands with the fault already."""
    if result.fault:
        cause = cause_of(result, result.fault.type, result.fault.message, result.fault.line)
        yield from (edit.line for edit in (cause.edits if cause else ()))


def candidates(result: Result) -> list[tuple[Edit, ...]]:
    """Edits to be tried, those of the most pressing findings first, each once."""
    return list(dict.fromkeys(f.edits for f in by_level(_found(result))[:MOST] if f.edits))


def _with_trial(finding: Finding, result: Result) -> Finding:
    """What running the repaired program showed; without an edit that was tried and did not help."""
    tried = next((r for r in result.repairs if r.edits == finding.edits), None) if finding.edits else None
    if tried is None:
        return finding
    if not tried.accepted:
        return replace(finding, edits=())
    gave = {"repaired: parameters": tried.parameters} if tried.parameters is not None else {}
    gave |= {"repaired: saved keys": tried.keys} if tried.keys is not None else {}
    return replace(finding, edit_tested=True, evidence=finding.evidence | gave)
