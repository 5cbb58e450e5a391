"""A visitor's program with its waits counted."""

from __future__ import annotations

import ast
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from lab import torch_private
from lab.contract import Report
from lab.experiments.transfers.schema import Params, Result
from lab.experiments.transfers.wait_trace import WaitTrace
from lab.program import run as program
from lab.program.explain import explain_fault
from lab.records.transfers import Wait

_SHARE = 0.8


def run_own(params: Params, report: Report) -> Result:
    """Faults of the program do not raise: they are in ``fault``."""
    report(0.0, "running the program")
    steps: list[int] = []
    handle = register_optimizer_step_post_hook(lambda *_: steps.append(1))
    try:
        with program.torch_defaults(params.seed, params.device):
            trace = WaitTrace()
            with trace:
                ran = program.run_typed(params, share=_SHARE, names=program.namespace())
            return Result(
                view="waits", waits=_waits(trace, params), steps=len(steps), values=_numbers(ran.namespace), code=params.code,
                fault=explain_fault(ran.ended) if ran.ended else None, **ran.said.fields(),
            )  # fmt: skip
    finally:
        torch_private.remove_global_hook(handle)


def _waits(trace: WaitTrace, params: Params) -> tuple[Wait, ...]:
    loops = lines_in_loops(params.code)
    return tuple(
        Wait(line, source, op, times, line in loops, seconds if params.device == "cuda" else None)
        for (line, source, op), (times, seconds) in sorted(trace.found.items())
    )


def lines_in_loops(code: str) -> set[int]:
    """Lines in the body of a for or while loop, or of a function (which loops call)."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            for part in node.body:
                found.update(range(part.lineno, (part.end_lineno or part.lineno) + 1))
            if isinstance(node, ast.While):
                found.add(node.lineno)
    return found


def _numbers(names: dict[str, Any]) -> dict[str, float]:
    """Plain numbers and truth values that the program left, also those in a dict called result."""
    found = {k: v for k, v in names.items() if not k.startswith("_")}
    inner = names.get("result")
    if isinstance(inner, dict):
        found |= {k: v for k, v in inner.items() if isinstance(k, str)}
    return {k: float(v) for k, v in found.items() if type(v) in (bool, int, float)}
