"""Run the program in view of its modes, or measure the modes themselves."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import torch

from lab.contract import Report, knobs
from lab.experiments.gradient_modes.causes import candidates, fault_of
from lab.experiments.gradient_modes.matrix import measure_modes, measure_switches
from lab.experiments.gradient_modes.schema import Params, Result
from lab.experiments.gradient_modes.story import Story
from lab.experiments.gradient_modes.uses import measure_uses
from lab.instruments.describing.assigned import assigned_names
from lab.instruments.describing.names import failed_scopes, named_tensors
from lab.instruments.graph.events import OptimizerSteps
from lab.program import run as program
from lab.program.repair import Trial
from lab.records.gradient_modes import Birth, Blame
from lab.torch_private import require

NEEDED = ("versions", "storages", "quiet subclasses", "function transforms")
_SHARE_OF_ALL = 0.85


def run(params: Params, report: Report) -> Result:
    """The view that was asked for, and nothing else. Faults of the program do not raise: they are in ``fault``."""
    require(*NEEDED)
    if params.view == "matrix":
        with program.torch_defaults(params.seed, params.device):
            report(0.0, "measuring the modes")
            modes = measure_modes(params, lambda share: report(0.7 * share, "measuring the modes"))
            report(0.7, "measuring train and eval")
            return Result(
                view="matrix", modes=modes, matrix23=measure_switches(params), device=params.device, code=params.code
            )
    if params.view == "uses":
        with program.torch_defaults(params.seed, params.device):
            return Result(view="uses", uses=measure_uses(report), device=params.device, code=params.code)
    started = time.perf_counter()
    result = _program(params, report)
    edits = candidates(result)
    if not edits:
        return result
    report(0.8, "trying the repair", result)
    limits = knobs(Params)["code"].program
    assert limits is not None
    trial = Trial(
        params.code,
        seed=params.seed,
        device=params.device,
        asked=bool(result.filled) or "backward" in params.code,
        errors=(result.fault.message,) if result.fault else (),
        seconds_left=lambda: _SHARE_OF_ALL * limits.wall_s - (time.perf_counter() - started),
    )
    return replace(result, repairs=trial.repairs(edits))


def _program(params: Params, report: Report) -> Result:
    report(0.0, "running the program")
    names = program.namespace()
    with program.torch_defaults(params.seed, params.device):
        story = Story(program.FILE, names, assigned_names(params.code))
        started = time.perf_counter()
        with OptimizerSteps(story.note_step), story.line_modes, story:
            ran = program.run_typed(params, share=0.6, names=names)
        seconds = time.perf_counter() - started
        torch.set_grad_enabled(True)  # whatever the program left on: the rest is the lab's
        result = _read(params, story, ran, seconds)
    if story.broken:
        raise RuntimeError("the modes could not be recorded") from story.broken
    return result


def _read(params: Params, story: Story, ran: program.Ran, seconds: float) -> Result:
    failed = failed_scopes(ran.error, program.FILE)
    story.name_births([*failed, ran.namespace])
    kept, modes = story.kept, story.line_modes
    result = Result(
        view="program",
        lines=tuple(kept.lines),
        lines_cut=story.made - len(kept.lines),
        births=tuple(kept.births),
        bands=modes.records(),
        switches=tuple(modes.switches),
        leaks=tuple(_with_operations(leak, story) for leak in modes.leaks),
        filled=story.filled(),
        idle_steps=story.idle_steps(),
        idle=tuple(sorted(modes.idle)),
        blame=_blame(story, ran, failed, params.code),
        values=_numbers(ran.namespace),
        code=params.code,
        device=params.device,
        seconds=seconds,
        **ran.said.fields(),
    )
    return replace(result, fault=fault_of(ran.ended, result, kept.writes))


def _with_operations(leak: Any, story: Story) -> Any:
    """How many operations ran in the mode that got out, until it was changed again."""
    if leak.how == "end":
        return leak
    until = next((s.step for s in story.line_modes.switches if s.step > leak.operations), len(story.kept.lines))
    return replace(leak, operations=until - leak.operations)


def _blame(story: Story, ran: program.Ran, failed: list[Any], code: str) -> Blame | None:
    """The last refusal if that ended the program, else the tensors that the failing line names."""
    if ran.ended is None or ran.error is None or ran.ended.line is None:
        return None
    seen, line = story.refused, ran.ended.line
    if seen is not None and seen.error == id(ran.error):
        operands = tuple(_named(b, story, failed, i) for i, b in enumerate(seen.operands))
        return Blame(seen.line or line, seen.op, operands, ran.ended.message)
    text = ([*code.split("\n"), ""])[line - 1]
    found: dict[str, Birth] = {}
    for name, tensor in named_tensors(failed):
        if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w])", text):
            found.setdefault(name, story.birth_of(tensor, name))
    return Blame(line, "", tuple(found.values())[:8], ran.ended.message) if found else None


def _named(birth: Birth, story: Story, failed: list[Any], at: int) -> Birth:
    if birth.name or birth.line is None:
        return birth
    known = next((b for b in story.kept.births if (b.line, b.op, b.step) == (birth.line, birth.op, birth.step)), birth)
    return replace(birth, name=known.name)


def _numbers(names: dict[str, Any]) -> dict[str, float]:
    """Plain numbers and truth values, also inside a dict called result."""
    found: dict[str, float] = {}
    for name, value in names.items():
        if type(value) in (bool, int, float) and not name.startswith("_"):
            found[name] = float(value)
    return found
