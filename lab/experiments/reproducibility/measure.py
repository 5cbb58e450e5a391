"""Run twice with one thing changed and find where the two part; look at this host's operations, at levels, at what is pinned."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import torch

from lab.contract import Report
from lab.experiments.reproducibility.host import refused, sensitive, sources, step_cost
from lab.experiments.reproducibility.own_program import run_own
from lab.experiments.reproducibility.recording import Recorder, Recording, compared
from lab.experiments.reproducibility.schema import Params, Result
from lab.records.reproducing import Draw, Growth, LevelRow
from lab.workloads.repeatable import built, circumstances
from lab.workloads.resumable_training import generators_kept

_SEEDS = 5
_SLOWER = 1e-3
"""The other learning rate, of the conclusion that is tried."""


def run(params: Params, report: Report) -> Result:
    """The view that was asked for. Faults of a program do not raise: they are in ``fault``."""
    started = time.perf_counter()
    if params.view == "program":
        result = run_own(params, report)
    else:
        with generators_kept(), torch.enable_grad(), warnings.catch_warnings(action="ignore"):
            result = _VIEWS[params.view](params, report)
    return replace(result, seconds=time.perf_counter() - started)


def _difference(params: Params, report: Report) -> Result:
    report(0.0, "recording the first run")
    a, b = (_recorded(change, params) for change in ("nothing", params.change))
    first, timeline, same = compared(a, b)
    result = Result(
        view="difference", change=params.change, first=first, timeline=timeline, operations_a=len(a.rows),
        operations_b=len(b.rows), equal_operations=same, draws=draws_of(a, b),
    )  # fmt: skip
    report(0.6, "how the gap grows", result)
    return replace(result, growth=_growth(params.change, params.steps, params.seed))


def _recorded(change: str, params: Params) -> Recording:
    recorder = Recorder(tape=True)
    with circumstances(change), recorder:
        training = built(change, params.seed, recorder.told)
        for at in range(min(params.steps, 6)):
            training.step(at)
    return recorder.recording


def draws_of(a: Recording, b: Recording) -> tuple[Draw, ...]:
    """What advanced torch's generator, stretches of the same line and operation joined."""
    joined: list[list[int | str]] = []
    for line, op in a.draws:
        if joined and joined[-1][:2] == [line, op]:
            joined[-1][2] = int(joined[-1][2]) + 1
        else:
            joined.append([line, op, 1])
    in_b = set(b.draws)
    found = [
        Draw(at, int(line), str(op), int(count), "torch", True, (int(line), str(op)) in in_b)
        for at, (line, op, count) in enumerate(joined)
    ]
    extra = [draw for draw in dict.fromkeys(b.draws) if draw not in set(a.draws)]
    return (*found, *(Draw(len(found) + at, line, op, 1, "torch", False, True) for at, (line, op) in enumerate(extra)))


def _growth(change: str, steps: int, seed: int) -> tuple[Growth, ...]:
    """Both trainings without a recorder, each in its own circumstances, step by step."""
    runs = {side: _parameters(one, steps, seed) for side, one in (("a", "nothing"), ("b", change))}
    return tuple(
        Growth(at, float((p - q).norm() / p.norm()), loss_a, loss_b)
        for at, ((p, loss_a), (q, loss_b)) in enumerate(zip(runs["a"], runs["b"], strict=True))
    )


def _parameters(change: str, steps: int, seed: int, lr: float = 1e-2) -> list[tuple[torch.Tensor, float]]:
    with circumstances(change):
        training = built(change, seed, lr=lr)
        found = []
        for at in range(steps):
            loss = training.step(at)
            flat = torch.cat([p.detach().double().flatten() for p in training.model.parameters()])
            found.append((flat, loss))
    return found


def _host(params: Params, report: Report) -> Result:
    found = tuple(sensitive(params.repeats, lambda share, line: report(0.8 * share, line)))
    result = Result(view="host", sensitive=found, refused=tuple(refused()), repeats=params.repeats)
    report(0.85, "steps in turns", result)
    return replace(result, cost=step_cost())


def _levels(params: Params, report: Report) -> Result:
    report(0.0, "the spread over seeds")
    seeds = [_parameters("nothing", params.steps, params.seed + k) for k in range(_SEEDS)]
    report(0.5, "with the change")
    changed = _parameters(params.change, params.steps, params.seed)
    slower = [_parameters(change, params.steps, params.seed, _SLOWER) for change in ("nothing", params.change)]
    finals = tuple(run[-1][1] for run in seeds)
    curve = max(abs(a[1] - b[1]) for a, b in zip(seeds[0], changed, strict=True))
    spread = max(
        max(run[at][1] for run in seeds) - min(run[at][1] for run in seeds) for at in range(params.steps)
    )  # fmt: skip
    bits = float((seeds[0][-1][0] - changed[-1][0]).abs().max())
    better = [fast[-1][1] < slow[-1][1] for fast, slow in ((seeds[0], slower[0]), (changed, slower[1]))]
    margin = slower[0][-1][1] - seeds[0][-1][1], slower[1][-1][1] - changed[-1][1]
    levels = (
        LevelRow("the same bits", bits == 0.0, bits, 0.0, "largest difference of a weight after the last step"),
        LevelRow("the same curve", curve <= spread, curve, spread, "largest difference of the losses of a step, against the spread over five seeds"),
        LevelRow("the same conclusion", better[0] == better[1], margin[1], margin[0], "by how much learning rate 0.01 beats 0.001 in the last loss, with the change and without"),
    )  # fmt: skip
    return Result(view="levels", change=params.change, levels=levels, seeds=finals)


def _sources(params: Params, report: Report) -> Result:
    return Result(view="sources", sources=tuple(sources(seeded=True)))


_VIEWS = {"difference": _difference, "host": _host, "levels": _levels, "sources": _sources}
