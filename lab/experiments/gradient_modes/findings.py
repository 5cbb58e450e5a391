"""What to notice, computed from the result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from lab.contract import Finding, Site, by_level
from lab.experiments.gradient_modes.readings import counts_by_line
from lab.experiments.gradient_modes.schema import Result
from lab.quantities import bytes_text

MOST = 6
_WORDS = {"grad": "grad mode", "no_grad": "no_grad", "inference": "inference mode"}


def explain(result: Result) -> tuple[Finding, ...]:
    """The most pressing first."""
    found = {"program": _program, "matrix": _matrix, "uses": _uses}[result.view](result)
    return tuple(islice(by_level(found), MOST))


def _program(result: Result) -> Iterator[Finding]:
    yield from _fault(result)
    yield from _leaks(result)
    yield from _idle(result)
    yield from _idle_steps(result)
    yield from _both(result)
    yield from _cuts(result)
    yield from _filled(result)
    yield from _totals(result)


def _fault(result: Result) -> Iterator[Finding]:
    fault = result.fault
    if fault is None or not fault.sites or not fault.explanation:
        return
    tested = next((r for r in result.repairs if r.accepted), None)
    yield Finding(
        level="fault",
        title=f"The cause is on line {fault.sites[0].line}",
        text=fault.explanation,
        evidence={"born or switched on line": fault.sites[0].line, "failed on line": fault.line},
        line=fault.sites[0].line,
        repair=fault.repair,
        sites=fault.sites,
        edits=tested.edits if tested else (),
        edit_tested=tested is not None,
    )


def _leaks(result: Result) -> Iterator[Finding]:
    named = {site.line for site in result.fault.sites} if result.fault else set()
    for leak in result.leaks:
        mode = _WORDS[leak.mode]
        if leak.how == "generator" and leak.operations and leak.line not in named:
            yield Finding(
                level="warning",
                title="A suspended generator left its mode to the caller",
                text=f"The generator stopped at the yield on line {leak.at} inside the {mode} of line {leak.line}. Until it goes on, its caller runs in {mode}: {leak.operations} operations did.",
                evidence={"operations outside in this mode": leak.operations},
                line=leak.line,
                repair="End the mode before the yield, or decorate the generator.",
                sites=(Site(leak.line, "switched here"), Site(leak.at, "suspended here")),
            )
        if leak.how == "end" and leak.line not in named:
            yield Finding(
                level="warning",
                title=f"The program ends in {mode}",
                text=f"Line {leak.line} switched from {_WORDS[leak.before]} to {mode}, and nothing undid it: it stays in force for all that follows.",
                evidence={"mode at the end": leak.mode},
                line=leak.line,
                repair="Use it as a context manager: with torch.set_grad_enabled(False): ...",
                sites=(Site(leak.line, "switched here", before=leak.before, after=leak.mode),),
            )


def _idle(result: Result) -> Iterator[Finding]:
    switches = [s.line for s in result.switches if s.from_ == s.to == "inference"]
    ran = [op for op in result.lines if op.line in result.idle and op.inference and op.grad_fn == ""]
    if not switches or not ran:
        return
    yield Finding(
        level="surprise",
        title="enable_grad has no effect inside inference mode",
        text=f"Line {switches[0]} enables gradients inside inference mode. Line {ran[0].line} still recorded nothing, and its result is an inference tensor.",
        evidence={"operations": len(ran), "recorded": 0},
        line=switches[0],
        repair="Leave the mode: torch.inference_mode(False), or use no_grad outside.",
        sites=(Site(switches[0], "has no effect"), Site(ran[0].line or 0, "not recorded")),
    )


def _idle_steps(result: Result) -> Iterator[Finding]:
    for step in result.idle_steps[:2]:
        born = (
            f" {step.name or 'The first'} was born on line {step.born} in {_WORDS[step.born_mode]}."
            if step.born
            else ""
        )
        yield Finding(
            level="warning",
            title=f"{step.optimizer} on line {step.line} steps over everything it holds",
            text=f"None of its tensors requires a gradient or has one, so each step leaves them as they are, without a word.{born}",
            evidence={"tensors held": step.tensors, "requiring a gradient": 0},
            line=step.born or step.line,
            repair="requires_grad_() on them before the optimizer is made, or nn.Parameter.",
            sites=(
                *((Site(step.born, "born here", step.name),) if step.born else ()),
                Site(step.line, "steps nothing"),
            ),
        )


def _both(result: Result) -> Iterator[Finding]:
    for line, modes in islice(counts_by_line(result).items(), 200):
        with_grad, without = modes.get("grad", 0), sum(n for mode, n in modes.items() if mode != "grad")
        recorded = any(
            b.line == line == b.cut_line and b.requires_grad and b.cut_by in ("no_grad", "inference")
            for b in result.births
        )  # a recorded run goes on with what an unrecorded one gave
        switch = next(
            (
                result.births[op.birth].switch_line
                for op in result.lines
                if op.line == line
                and op.mode != "grad"
                and op.birth is not None
                and result.births[op.birth].switch_line
            ),
            None,
        )
        if with_grad and without and recorded and switch and result.fault is None and not result.idle:
            yield Finding(
                level="surprise",
                title=f"Line {line} ran in two modes",
                text=f"Operations with gradients enabled: {with_grad}, without: {without}. Only what was recorded leads gradients back.",
                evidence={"recorded": with_grad, "not recorded": without},
                line=switch,
                sites=(Site(switch, "switches the mode"), Site(line, "in two modes")),
            )
            return


def _cuts(result: Result) -> Iterator[Finding]:
    seen: set[int] = set()
    told = {site.line for site in result.fault.sites} if result.fault else set()
    for birth in result.births:
        line = birth.cut_line
        if (
            line is None
            or line != birth.line
            or line in seen
            or line in told
            or birth.cut_by != "detach"
            or birth.requires_grad
            or not (birth.name or birth.op == "detach")
        ):
            continue
        seen.add(line)
        yield Finding(
            level="fact",
            title=f"{'.data' if birth.op == 'data' else birth.op} on line {line} ends the graph",
            text=f"{birth.name or 'Its result'} has the same values and no history: no gradient goes back through it.",
            evidence={"requires grad after": False},
            line=line,
            sites=(Site(line, "cut here", birth.name),),
        )
        if len(seen) == 2:
            return


def _filled(result: Result) -> Iterator[Finding]:
    """Two passes that differ in whose gradients they fill."""
    for filled in result.filled:
        fewer = next((f for f in result.filled if set(f.owners) < set(filled.owners)), None)
        if fewer is None:
            continue
        yield Finding(
            level="fact",
            title=f"backward on line {filled.line} filled gradients of {' and '.join(filled.owners[:4])}",
            text=f"All of them are behind that loss. A pass on line {fewer.line} filled only {', '.join(fewer.owners)}. What is not to be trained is kept out by detach before it.",
            evidence={"owners": len(filled.owners), "in the other pass": len(fewer.owners)},
            line=filled.line,
            sites=(
                Site(filled.line, "fills more"),
                *((Site(fewer.line, "fills fewer"),) if fewer.line != filled.line else ()),
            ),
        )
        return


def _totals(result: Result) -> Iterator[Finding]:
    modes = {mode: sum(op.mode == mode for op in result.lines) for mode in _WORDS}
    if not result.lines or result.lines_cut:
        return
    recorded = sum(bool(op.grad_fn) for op in result.lines)
    inference = sum(birth.inference for birth in result.births)
    others = (
        f", {modes['no_grad']} under no_grad, {modes['inference']} in inference mode"
        if modes["no_grad"] or modes["inference"]
        else ""
    )
    yield Finding(
        level="fact",
        title=f"{recorded} of {len(result.lines)} results have a history",
        text=f"{modes['grad']} came in grad mode{others}. Inference tensors: {inference}.",
        evidence={"recorded": recorded, "results": len(result.lines), "inference tensors": inference},
    )


def _matrix(result: Result) -> Iterator[Finding]:
    cells = {(c.training, c.mode): c for c in result.matrix23}
    train, evaluated = cells[True, "grad"], cells[False, "grad"]
    quiet = cells[False, "no_grad"]
    if evaluated.saved_bytes and not quiet.saved_bytes:
        yield Finding(
            level="surprise",
            title="eval() still records",
            text=f"In eval mode with gradients enabled the forward keeps {bytes_text(evaluated.saved_bytes)} for backward; under no_grad it keeps nothing.",
            evidence={
                "eval_bytes": evaluated.saved_bytes,
                "no_grad_bytes": quiet.saved_bytes,
                "train_bytes": train.saved_bytes,
            },
            repair="Use both: model.eval() and torch.no_grad() or inference_mode().",
        )
    rows = {row.mode: row for row in result.modes}
    inner = [m for m in ("enable_grad in no_grad", "enable_grad in inference_mode") if rows[m].records]
    if inner == ["enable_grad in no_grad"]:
        yield Finding(
            level="surprise",
            title="enable_grad undoes no_grad, not inference mode",
            text="Backward reached the leaf from enable_grad inside no_grad, and did not from enable_grad inside inference mode.",
            evidence={"records in no_grad": True, "records in inference_mode": False},
        )
    faster_eval = 1 - evaluated.forward_s / train.forward_s
    faster_mode = 1 - cells[True, "no_grad"].forward_s / train.forward_s
    if faster_eval > 0.1 and faster_eval > faster_mode + 0.1:
        yield Finding(
            level="fact",
            title="Here eval() saves more time than the gradient mode",
            text=f"Against train and grad, the forward took {faster_eval:.0%} less in eval mode, {abs(faster_mode):.0%} {'less' if faster_mode > 0 else 'more'} under no_grad.",
            evidence={"eval saves": round(faster_eval, 3), "no_grad saves": round(faster_mode, 3)},
        )


def _uses(result: Result) -> Iterator[Finding]:
    cells = {(u.kind, u.use): u for u in result.uses}
    failed = sum(u.outcome != "ok" for u in result.uses)
    yield Finding(
        level="fact",
        title=f"{failed} of {len(result.uses)} uses fail",
        text=f"{len({u.kind for u in result.uses})} kinds of tensor, {len({u.use for u in result.uses})} uses, each of them run.",
        evidence={"failed": failed, "run": len(result.uses)},
    )
    plus, times = cells["inference", "plus a parameter"], cells["inference", "times a parameter"]
    if plus.outcome == "ok" and times.outcome != "ok":
        yield Finding(
            level="surprise",
            title="An inference tensor may be added and not multiplied",
            text="The product has to save it for backward; the sum saves nothing.",
            evidence={"plus": plus.outcome, "times": times.outcome},
        )
    quiet = [u.kind for u in result.uses if u.use == "SGD trains it" and u.message == "does not move"]
    if quiet:
        yield Finding(
            level="surprise",
            title="The optimizer takes tensors that it never moves",
            text=f"SGD accepted {len(quiet)} kinds without a word and its step changed nothing: {', '.join(quiet[:5])}.",
            evidence={"kinds": len(quiet)},
        )
