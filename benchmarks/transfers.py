"""What counting waits costs, against the same program typed without a watch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.turns import in_turns, line
from lab.contract import silent
from lab.experiments.transfers import Params, run
from lab.program import run as program


def measure() -> Iterator[dict[str, Any]]:
    """One thread, as in a sealed run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    params = Params()

    def plain() -> None:
        with program.torch_defaults(params.seed, params.device):
            program.run_typed(params, share=0.8, names=program.namespace())

    try:
        ours, theirs = in_turns(lambda: run(params, silent), plain, rounds=9)
        yield line("twenty steps with their waits counted", ours, theirs, "watched against plain", better="lower")
    finally:
        torch.set_num_threads(threads)
