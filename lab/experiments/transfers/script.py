"""The measurement on its own, in plain PyTorch; the headline number is printed last."""

from __future__ import annotations

from lab.experiments.transfers.schema import Params

_WAITS = """import math
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Waits(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        index = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        if index or name in ("_local_scalar_dense", "nonzero", "_unique2", "masked_select", "equal"):
            frame, own = sys._getframe(1), False
            while frame is not None:
                own |= "/torch/optim/" in frame.f_code.co_filename
                frame = frame.f_back
            self.count += not own
        return func(*args, **(kwargs or {{}}))


torch.manual_seed({seed})
waits = Waits()
with waits:
{program}
print(waits.count)
"""
_COPIES = """import time

import torch

torch.set_num_threads(1)
source, target = torch.ones(2048, 2048), torch.empty(2048, 2048)
best = {"as it lies": 1e9, "transposed": 1e9}
for _ in range(12):
    for kind, x in (("as it lies", source), ("transposed", source.t())):
        started = time.perf_counter()
        target.copy_(x)
        best[kind] = min(best[kind], time.perf_counter() - started)
print(best["transposed"] / best["as it lies"])
"""
_OVERLAP = """import torch

print("CUDA device:", torch.cuda.is_available())
print(float(torch.ones(3).to("cpu", non_blocking=True).is_pinned()) if torch.cuda.is_available() else 0.0)
"""


def script(params: Params) -> str:
    """A program of its own."""
    if params.view == "copies":
        return _COPIES
    if params.view == "overlap":
        return _OVERLAP
    lines = "\n".join(f"    {line}".rstrip() for line in params.code.rstrip().split("\n"))
    return _WAITS.format(seed=params.seed, program=lines)
