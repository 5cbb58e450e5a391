"""What to notice in a graph, computed from the result: faults first, then what warns, then what surprises, then plain facts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from lab.contract import Edit, Finding, by_level
from lab.experiments.autograd_graph.faults import explain as explain_error
from lab.experiments.autograd_graph.findings import (
    custom,
    facts,
    hooks,
    in_place,
    leaves,
    losses,
    no_path,
    not_finite,
    single_functions,
    training,
    zeros,
)
from lab.experiments.autograd_graph.findings.record import Record, on_line, short, site
from lab.experiments.autograd_graph.findings.tested import with_trial
from lab.experiments.autograd_graph.schema import Result

MOST = 5


def explain(result: Result) -> tuple[Finding, ...]:
    """At most ``MOST`` things to notice, the most important first."""
    return tuple(with_trial(finding, result) for finding in _found(result))


def candidates(result: Result) -> tuple[tuple[Edit, ...], ...]:
    """Repairs that are worth a trial, the most important first."""
    return tuple(finding.edits for finding in _found(result) if finding.edits)


def _found(result: Result) -> list[Finding]:
    record = Record(result)
    found = [finding for look in _LOOKS for finding in _seen(look, record)]
    return list(by_level(found)[:MOST])


def _seen(look: Callable[[Record], Iterator[Finding]], record: Record) -> list[Finding]:
    """What one look finds. A look that fails is silent: the others are still true."""
    found: list[Finding] = []
    try:
        found += look(record)
    except Exception:
        logging.getLogger(__name__).exception("%s failed", look.__name__)
    return found


def _fault(record: Record) -> Iterator[Finding]:
    """What ended the program: the same words as its fault, with the numbers."""
    fault = record.result.fault
    if fault is None:
        return
    text, evidence, edits = fault.explanation or short(fault.message), {"message": short(fault.message)}, ()
    why = explain_error(record, fault.type, fault.message, fault.line)
    if why is not None:
        text, evidence, edits = why.text, why.evidence or evidence, why.edits
    yield Finding(
        level="fault",
        title=f"{fault.type}{on_line(fault.line)}",
        text=text,
        evidence=evidence,
        line=fault.line,
        repair=fault.repair,
        sites=fault.sites,
        edits=edits,
    )


def _by_lab_would_fail(record: Record) -> Iterator[Finding]:
    result = record.result
    for run in result.passes:
        tried = any(own.by == "program" and own.error == run.error for own in result.passes)
        if run.error and run.by == "lab" and not tried:
            why = explain_error(record, "RuntimeError", run.error, None)
            line = next((s.changed_line for _, s in in_place.overwritten_slots(result.nodes)), None)
            title = f"backward from {result.root} would fail"
            if why is None:
                yield Finding(level="fault", title=title, text=short(run.error), evidence={"call": run.call}, line=line)
                continue
            text = f"The program calls no backward; the lab tried one. {why.text}"
            yield Finding(
                level="fault",
                title=title,
                text=text,
                evidence=why.evidence,
                line=line,
                repair=why.repair,
                sites=why.sites,
                edits=why.edits,
            )


def _caught(record: Record) -> Iterator[Finding]:
    """Errors of torch that the program caught, each explanation once."""
    fault, told = record.result.fault, set()
    events = [
        (run.error, run.line, run.call, "RuntimeError")
        for run, _ in record.own_passes()
        if run.error and run.by == "program"
    ]
    events += [(r.message, r.line, r.operation, r.kind) for r in record.result.refused]
    for message, line, call, kind in events:
        if fault is not None and message[:100] == fault.message[:100] and line == fault.line:
            continue
        why = explain_error(record, kind, message, line)
        if why is None or why.text in told:
            continue
        told.add(why.text)
        text = f"{why.text} The program caught the error and went on."
        at = why.sites[0].line if why.sites else line
        yield Finding(
            level="surprise",
            title=f"{call}{on_line(line)} was refused",
            text=text,
            evidence=why.evidence,
            line=at,
            repair=why.repair,
            sites=why.sites or site(line, "fails here"),
            edits=why.edits,
        )
        if len(told) == 2:
            return


_LOOKS: tuple[Callable[[Record], Iterator[Finding]], ...] = (
    _fault,
    _by_lab_would_fail,
    custom.wrong_derivatives,
    not_finite.not_finite,
    no_path.missing_graph,
    in_place.written_through_data,
    training.stepped_without_gradient,
    training.clipped_after_step,
    training.optimizer_of_others,
    training.frozen_by_load,
    losses.broadcast_loss,
    single_functions.gradcheck_in_single_precision,
    single_functions.scatter_twice,
    single_functions.imaginary_dropped,
    training.growing_history,
    training.kept_in_a_total,
    hooks.hooks,
    hooks.grad_read_in_module_hook,
    losses.policy_reaches_critic,
    _caught,
    no_path.switches_without_effect,
    leaves.unused_leaves,
    leaves.result_read_for_grad,
    zeros.bias_before_batch_norm,
    zeros.cancelled_paths,
    zeros.conventions,
    training.accumulated,
    zeros.straight_second_derivative,
    zeros.stopped_gradients,
    facts.cut,
    facts.broadcast,
    single_functions.drawn_by_torchviz,
    facts.used_twice,
    facts.frozen,
    facts.custom,
    facts.recomputed,
    facts.slow_path,
    facts.by_lab,
    facts.kept,
    facts.order,
)
