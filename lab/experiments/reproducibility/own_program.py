"""A visitor's program run twice: what differs, at which line, which lines draw, and how many runs end the same."""

from __future__ import annotations

import hashlib
import random
import time
from dataclasses import replace
from typing import Any

import torch

from lab.contract import Report, knobs
from lab.experiments.reproducibility.host import sources
from lab.experiments.reproducibility.recording import Recorder, Recording, bits_of, compared
from lab.experiments.reproducibility.schema import PROGRAM_CHANGES, Params, Result
from lab.instruments.describing.names import named_tensors
from lab.program import run as program
from lab.program.explain import explain_fault
from lab.program.passing import line_now
from lab.records.reproducing import Draw
from lab.workloads.repeatable import circumstances

_SHARE = 0.25
"""Of the wall time for one run; it is run at least twice."""
_ALL = 0.8


def run_own(params: Params, report: Report) -> Result:
    """Faults of the program do not raise: they are in ``fault``."""
    from lab.experiments.reproducibility.measure import draws_of

    started = time.perf_counter()
    change = params.change if params.change in PROGRAM_CHANGES else "nothing"
    report(0.0, "running the program")
    first, ran, before = _recorded(params, "nothing")
    others = _other_generators(before)
    values = _numbers(ran.namespace)
    result = Result(view="program", change=change, code=params.code, values=values, **ran.said.fields())
    if ran.ended:
        return replace(result, fault=explain_fault(ran.ended), draws=(*draws_of(first, first), *others))
    report(0.3, "running it again")
    second, again, _ = _recorded(params, change)
    parted, timeline, same = compared(first, second)
    result = replace(
        result, first=parted, timeline=timeline, operations_a=len(first.rows), operations_b=len(second.rows),
        equal_operations=same, draws=(*draws_of(first, second), *others), sources=tuple(sources(seeded=True)),
    )  # fmt: skip
    ends = {_end(ran), _end(again)} if change == "nothing" else {_end(ran)}
    runs = 2 if change == "nothing" else 1
    limits = knobs(Params)["code"].program
    assert limits is not None
    while runs < params.repeats and time.perf_counter() - started < _ALL * limits.wall_s * 0.5:
        report(0.4 + 0.6 * runs / params.repeats, f"run {runs + 1}", result)
        with program.torch_defaults(params.seed, params.device):
            ends.add(_end(program.run_typed(params, share=_SHARE, names=program.namespace())))
        runs += 1
    return replace(result, distinct=len(ends), repeats=runs)


def _recorded(params: Params, change: str) -> tuple[Recording, program.Ran, tuple[Any, Any]]:
    """One run under a recorder, and the states of the other generators after it."""
    seed = params.seed + 1 if change == "seed" else params.seed
    with program.torch_defaults(seed, params.device), circumstances(change):
        if change == "extra draw":
            torch.rand(1)
        at_start = random.getstate(), _numpy_state()
        recorder = Recorder(line_now, tape=True)
        with recorder:
            ran = program.run_typed(params, share=_SHARE, names=program.namespace())
        moved = random.getstate() != at_start[0], _numpy_state() != at_start[1]
    return recorder.recording, ran, moved


def _numpy_state() -> bytes:
    import numpy as np

    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)
    return hashlib.blake2b(repr(state["state"]["pos"]).encode() + state["state"]["key"].tobytes()).digest()


def _other_generators(moved: tuple[bool, bool]) -> tuple[Draw, ...]:
    """Python's and NumPy's generators, where the program advanced them."""
    names = ("Python", "NumPy")
    return tuple(
        Draw(-1, 0, "drawn somewhere", 1, name, True, True) for name, yes in zip(names, moved, strict=True) if yes
    )


def _end(ran: program.Ran) -> bytes:
    """A hash of every tensor and number that a run left under a name."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in named_tensors([ran.namespace]):
        if tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.numel() <= 5_000_000:
            digest.update(name.encode(errors="replace") + bits_of([tensor]))
    for name, value in sorted(_numbers(ran.namespace).items()):
        digest.update(f"{name}={value!r}".encode(errors="replace"))
    digest.update(ran.output.said("").printed.encode(errors="replace"))
    return digest.digest()


def _numbers(names: dict[str, Any]) -> dict[str, float]:
    """Plain numbers and truth values that the program left, also those in a dict called result."""
    found = {k: v for k, v in names.items() if not k.startswith("_")}
    inner = names.get("result")
    if isinstance(inner, dict):
        found |= {k: v for k, v in inner.items() if isinstance(k, str)}
    return {k: float(v) for k, v in found.items() if type(v) in (bool, int, float)}
