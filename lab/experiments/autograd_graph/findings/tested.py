"""What running a repair showed, put into the finding that offers it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.contract import Finding, apply_edits
from lab.experiments.autograd_graph.findings.record import words
from lab.experiments.autograd_graph.schema import Result
from lab.program.edits import why_never
from lab.records.program import Repair

_GRADIENTS = 3


def with_trial(finding: Finding, result: Result) -> Finding:
    """The finding with what its repaired program gave; without edits that are never offered."""
    if not finding.edits:
        return finding
    edited = apply_edits(result.code, finding.edits)
    if edited is None or why_never(result.code, edited):
        return replace(finding, edits=())
    repair = next((repair for repair in result.repairs if repair.edits == finding.edits and repair.accepted), None)
    if repair is None:
        return finding
    return replace(finding, edit_tested=True, evidence=finding.evidence | _gave(repair))


def _gave(repair: Repair) -> dict[str, Any]:
    """ "repaired: x.grad" (0.42, 0.07), and how far the gradients were checked."""
    found: dict[str, Any] = {}
    if repair.loss is not None:
        found["repaired: backward starts from"] = words(repair.loss)
    for name, gradient in list(repair.gradients.items())[:_GRADIENTS]:
        found[f"repaired: {name}.grad"] = words(gradient)
    found["repaired: passes that agree with differences"] = repair.compared or "none to compare"
    return found


def asks_for_backward(result: Result) -> bool:
    """Whether the program ran the engine, or tried to."""
    own = any(run.by == "program" for run in result.passes)
    return own or any(
        "backward" in refused.operation or refused.operation.endswith(".grad") for refused in result.refused
    )


def starts_of(result: Result) -> list[Any]:
    """Values that the passes of a program started from, where a write in place ended one: a repair of that changes none."""
    passes = [run for run in result.passes if run.by == "program"]
    if not any("modified by an inplace operation" in run.error for run in result.passes):
        return []
    made = {m.state: m.value for m in result.made}
    return [made.get(run.roots[0]) if run.roots else None for run in passes]


def errors_of(result: Result) -> set[str]:
    """What the program was refused, also where it caught the error."""
    found = {run.error for run in result.passes if run.error and run.by == "program"}
    found |= {refused.message for refused in result.refused}
    return found | ({result.fault.message} if result.fault else set())
