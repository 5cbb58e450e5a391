"""What watching a program costs: 30 lines, and many small operations, against the same program typed without a watch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.turns import in_turns, line
from lab.contract import silent
from lab.experiments.gradient_modes import Params, run
from lab.program import run as program

THIRTY = (
    "x = torch.randn(16, 8)\nw = torch.randn(8, 4)\n"
    + "".join(f"h{n} = (x @ w).relu().t().reshape(-1)\n" for n in range(26))
    + "y = torch.stack([h0, h1])\ny += 1\n"
)
MANY = "x = torch.ones(8, 8)\nfor _ in range(500):\n    x = x.t()\n    y = x + 1\n"


def measure() -> Iterator[dict[str, Any]]:
    """One thread, as in a sealed run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield _against_plain(THIRTY, "a program of 30 lines in the bands of its modes")
        yield _against_plain(MANY, "1,000 small operations, each with its mode")
    finally:
        torch.set_num_threads(threads)


def _plain(params: Params) -> None:
    with program.torch_defaults(params.seed, params.device):
        program.run_typed(params, share=0.8)


def _against_plain(code: str, name: str) -> dict[str, Any]:
    params = Params(code=code)
    ours, theirs = in_turns(lambda: run(params, silent), lambda: _plain(params), rounds=9)
    detail = f"beyond a plain typed run: {(ours - theirs) * 1e3:.0f} ms"
    return line(name, ours, theirs, detail, better="lower")
