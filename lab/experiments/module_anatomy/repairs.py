"""A repair is run before it is offered: clean end, its finding gone, and where the program differentiates right gradients:
those of its own forward by differences, or the very ones from before, where a program cuts its graph on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from lab.contract import Edit, apply_edits
from lab.experiments.module_anatomy.schema import Params, Result
from lab.program.edits import why_never
from lab.program.lines import remember
from lab.program.repair import Trial
from lab.records.anatomy import TestedEdit

MOST_REPAIRS = 3


def tested(
    result: Result,
    params: Params,
    candidates: Sequence[tuple[Edit, ...]],
    seconds_left: Callable[[], float],
    once: Callable[[Params], Result],
) -> tuple[TestedEdit, ...]:
    """The first ``MOST_REPAIRS``, tried. ``once`` measures a program without trying repairs."""
    try:
        return tuple(_tried(result, params, edits, seconds_left, once) for edits in candidates[:MOST_REPAIRS])
    finally:
        remember(params.code)


def _tried(
    result: Result,
    params: Params,
    edits: tuple[Edit, ...],
    seconds_left: Callable[[], float],
    once: Callable[[Params], Result],
) -> TestedEdit:
    edited = apply_edits(params.code, edits)
    why = "its lines are not those of the program" if edited is None else why_never(params.code, edited)
    if why or edited is None:
        return TestedEdit(edits, False, why)
    if seconds_left() <= 0:
        return TestedEdit(edits, False, "there is no time left to try it")
    after = once(replace(params, code=edited, view="tree", action="none"))
    if after.fault:
        return TestedEdit(edits, False, f"it ended with {after.fault.type}: {after.fault.message[:160]}")
    if not _better(result, after):
        return TestedEdit(edits, False, "what it is to cure is still there")
    if ".backward(" in params.code:
        why = _gradients(edits, params, seconds_left)
        if why and not _same_gradients(result, after):
            return TestedEdit(edits, False, why)
    keys = sum(len(t.keys) for t in {t.identity: t for t in after.tensors}.values())
    return TestedEdit(edits, True, parameters=after.parameter_count, keys=keys)


def _better(before: Result, after: Result) -> bool:
    """One trouble less."""
    return before.fault is not None or _troubles(after) < _troubles(before)


def _troubles(result: Result) -> int:
    weights = {"activation": 2}  # without its graph it is still a plain tensor
    hanging = sum(weights.get(u.what, 1) for u in result.unregistered if not (u.what == "tensor" and u.in_forward))
    shared = sum(s.repeated for s in result.shared)
    skipped = sum(call.times for call in result.direct)
    split = sum(bool(c.split) and not _tied(result, c.split) for c in result.conversions)
    missing = sum(len(load.missing) for load in result.loads)
    return hanging + shared + skipped + split + missing + len(result.suspects)


def _tied(result: Result, names: tuple[str, ...]) -> bool:
    return any(set(names) <= set(s.names) for s in result.shared)


def _same_gradients(before: Result, after: Result) -> bool:
    """Of one step: a registration changes who finds a tensor, not what is computed with it."""
    old = {t.name: t.gradient_norm for t in before.tensors if t.gradient_norm is not None}
    new = {t.name: t.gradient_norm for t in after.tensors if t.gradient_norm is not None}
    common = old.keys() & new.keys()
    return bool(common) and not before.fault and all(math.isclose(old[n], new[n], rel_tol=1e-6) for n in common)


_ANY = tuple(map(str, range(1000)))
"""Errors that the program catches are its own business here: that the trouble is gone was seen already."""


def _gradients(edits: tuple[Edit, ...], params: Params, seconds_left: Callable[[], float]) -> str:
    """Why the gradients of the repaired program are not those of its own forward; empty where they are."""
    trial = Trial(
        params.code, seed=params.seed, device=params.device, asked=True, errors=_ANY, seconds_left=seconds_left
    )
    return next((repair.why_not for repair in trial.repairs([edits]) if not repair.accepted), "")
