"""Which elements share one mean and variance: read from the gradient of one output with respect to every input.

An output of a normalisation depends on the elements whose statistics it uses and on no others, so the non-zero entries
of its gradient are the reduced axes, measured.
"""

from __future__ import annotations

import torch
from torch import nn

from lab.records.modes_batchnorm import Reach

N, C, SIDE = 6, 8, 3
GROUPS = 2


LAYERS = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(C),
    "LayerNorm": lambda: nn.LayerNorm([C, SIDE, SIDE]),
    "GroupNorm": lambda: nn.GroupNorm(GROUPS, C),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(C),
    "RMSNorm": lambda: nn.RMSNorm([C, SIDE, SIDE]),
}


def read_reach(seed: int, device: str) -> tuple[Reach, ...]:
    """Every layer in train mode, then in eval mode, on one tensor (N, C, H, W) in float64."""
    torch.manual_seed(seed)
    x = (torch.randn(N, C, SIDE, SIDE, dtype=torch.float64) * 2 + 1).to(device)
    return tuple(_reach(name, mode, x) for mode in ("train", "eval") for name in LAYERS)


def _reach(name: str, mode: str, x: torch.Tensor) -> Reach:
    layer = LAYERS[name]().to(x).train(mode == "train")
    x = x.clone().requires_grad_()
    y = layer(x)
    (gradient,) = torch.autograd.grad(y[0, 0, 0, 0], x)
    reached = gradient != 0
    inside = y.detach()[reached]
    return Reach(
        layer=name,
        mode=mode,
        shares=tuple(map(tuple, reached.double().mean((2, 3)).tolist())),
        values=int(reached.sum()),
        samples=int(reached.flatten(1).any(1).sum()),
        mean=inside.mean().item(),
        std=inside.std(correction=0).item(),
    )
