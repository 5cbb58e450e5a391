"""What watching a fine-tuning costs: 60 steps of a program with the watch, against the same typed without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.turns import in_turns, line
from lab.contract import silent
from lab.experiments.fine_tuning import Params, run
from lab.program import run as program

STEPS = """model = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(60):
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(128, 64)), torch.randint(0, 10, (128,))).backward()
    optimizer.step()
"""


def measure() -> Iterator[dict[str, Any]]:
    """One thread, as in a sealed run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    params = Params(view="own", code=STEPS)

    def plain() -> None:
        with program.torch_defaults(params.seed, params.device):
            program.run_typed(params, share=0.8, names=program.namespace())

    try:
        ours, theirs = in_turns(lambda: run(params, silent), plain, rounds=9)
        yield line("60 steps, every tensor before against after", ours, theirs, "watched against plain", better="lower")
    finally:
        torch.set_num_threads(threads)
