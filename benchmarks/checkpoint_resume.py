"""What watching a program's state costs: a training with a checkpoint at each step, against the same typed without a watch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.turns import in_turns, line
from lab.contract import silent
from lab.experiments.checkpoint_resume import Params, run
from lab.program import run as program

CHECKPOINTS = """import io
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    optimizer.zero_grad()
    model(torch.ones(32, 64)).square().mean().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())
"""


def measure() -> Iterator[dict[str, Any]]:
    """One thread, as in a sealed run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    params = Params(view="program", code=CHECKPOINTS)

    def plain() -> None:
        with program.torch_defaults(params.seed, params.device):
            program.run_typed(params, share=0.8, names=program.namespace())

    try:
        ours, theirs = in_turns(lambda: run(params, silent), plain, rounds=9)
        yield line("20 steps, each with a checkpoint", ours, theirs, "watched against plain", better="lower")
    finally:
        torch.set_num_threads(threads)
