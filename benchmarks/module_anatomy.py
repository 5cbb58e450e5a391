"""What the page on modules costs: a program of thirty lines, and a large model, each against the bare program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.turns import in_turns, line
from lab.contract import silent
from lab.experiments.module_anatomy import Params, explain, run
from lab.program import run as program

PROGRAM = """class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return x + self.scale * self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, d, depth):
        super().__init__()
        self.embedding = nn.Embedding(50, d)
        self.blocks = nn.ModuleList([Block(d) for _ in range(depth)])
        self.head = nn.Linear(d, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = Net({width}, {depth})
batch = (torch.randint(0, 50, (4, 8)), torch.randint(0, 50, (4, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())
"""


def measure() -> Iterator[dict[str, Any]]:
    """One thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, width, depth, rounds in (("thirty lines", 16, 2, 11), ("twelve blocks", 128, 12, 5)):
            yield _against_bare(name, PROGRAM.replace("{width}", str(width)).replace("{depth}", str(depth)), rounds)
    finally:
        torch.set_num_threads(threads)


def _against_bare(name: str, code: str, rounds: int) -> dict[str, Any]:
    params = Params(code=code)

    def bare() -> None:
        with program.torch_defaults(0, "cpu"):
            program.run_typed(params, share=0.5)

    ours, theirs = in_turns(lambda: explain(run(params, silent)), bare, rounds=rounds)
    detail = f"tree with all marks against the same program typed and run; {1000 * (ours - theirs):.0f} ms more"
    return line(f"module anatomy, {name}", ours, theirs, detail, better="lower")
