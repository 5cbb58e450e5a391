"""Watched against bare training steps, and a live change of a control against a page that draws a constant."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from lab.contract import silent
from lab.execution.perform import perform
from lab.experiments.gradient_flow import Params
from lab.experiments.gradient_flow.measure import run
from lab.experiments.gradient_flow.subject import family_subject
from lab.program.run import torch_defaults
from lab.wire import encode
from lab.workloads.optimizers import make_optimizer

STEPS, ROUNDS = 10, 5
LIVE_S = 1.0
"""What a live control may take at depth 50."""


def measure() -> Iterator[dict[str, Any]]:
    """One row for each family: how much longer a run with all its instruments takes than its bare steps; one for depth 50."""
    torch.set_num_threads(1)
    for name, settings in (
        ("mlp", {"depth": 50}),
        ("rnn", {"family": "rnn", "depth": 50}),
        ("transformer", {"family": "transformer", "depth": 12, "width": 64, "batch": 16}),
    ):
        params = Params(**settings, steps=STEPS)  # pyright: ignore[reportArgumentType]
        ours, theirs = _medians(lambda p=params: run(p, silent), lambda p=params: _bare(p))
        yield {
            "name": f"gradient_flow: watched training, {name}",
            "ratio": ours / theirs,
            "better": "lower",
            "ours": ours,
            "theirs": theirs,
            "unit": "s",
            "detail": f"{STEPS} steps at depth {params.depth}, width {params.width}, batch {params.batch}; median of {ROUNDS}",
        }
    params = Params(depth=50)
    ours, theirs = _medians(lambda: perform("gradient_flow", encode(params), silent), lambda: None)
    yield {
        "name": "gradient_flow: live at depth 50",
        "ratio": ours / LIVE_S,
        "better": "lower",
        "ours": ours,
        "theirs": LIVE_S,
        "unit": "s",
        "detail": f"run, findings and wire form of the default at depth 50, against the limit of {LIVE_S:g} s; median of {ROUNDS}",
    }


def _bare(params: Params) -> None:
    """The same network, data and steps, nothing watched."""
    with torch_defaults(params.seed, params.device):
        subject = family_subject(params)
        optimizer = make_optimizer(params.optimizer, subject.model.parameters(), lr=params.lr)
        for _ in range(params.steps + 1):  # a watched run ends with one bare step
            optimizer.zero_grad()
            subject.loss().backward()
            optimizer.step()


def _medians(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, the two in turn so that both meet the same machine; the first of each is warm-up."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS + 1):
        for work, kept in zip((ours, theirs), times, strict=True):
            started = time.perf_counter()
            work()
            kept.append(time.perf_counter() - started)
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])
