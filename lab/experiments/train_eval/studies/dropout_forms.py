"""Every form of dropout that torch has, and the law that each follows.

All of them give y = a·(m·x + (1 − m)·d) + b with m = 1 (kept) with probability 1 − p. Dropout: d = 0, a = 1/(1 − p),
b = 0. AlphaDropout: d = −λα of SELU, and a, b chosen so that mean 0 and variance 1 stay (Klambauer et al. 2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

ALPHA_PRIME = -1.7580993408473766
"""−λα of SELU: what a dropped unit of AlphaDropout is set to."""


class FunctionalDropout(nn.Module):
    """``F.dropout(x, p)`` as people write it: its ``training`` is True, whatever the mode of the module."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.p)


@dataclass(frozen=True)
class Form:
    """One form of dropout."""

    make: Callable[[float], nn.Module]
    unit: str
    """What is dropped as a whole: element, row (one channel of a sequence), plane (one channel of an image)."""
    dims: int
    """Dimensions of the input: 2 for (N, C), 3 for (N, C, L), 4 for (N, C, H, W)."""


FORMS = {
    "Dropout": Form(nn.Dropout, "element", 2),
    "Dropout1d": Form(nn.Dropout1d, "row", 3),
    "Dropout2d": Form(nn.Dropout2d, "plane", 4),
    "AlphaDropout": Form(nn.AlphaDropout, "element", 2),
    "F.dropout": Form(FunctionalDropout, "element", 2),
}


@dataclass(frozen=True)
class Law:
    """y = a·(m·x + (1 − m)·d) + b."""

    a: float
    b: float
    d: float
    p: float

    def kept(self, x: torch.Tensor) -> torch.Tensor:
        return self.a * x + self.b

    @property
    def dropped(self) -> float:
        return self.a * self.d + self.b

    def mean(self, x: torch.Tensor) -> float:
        """Expected mean of all outputs."""
        return self.a * ((1 - self.p) * x.double().mean().item() + self.p * self.d) + self.b

    def variance(self, x: torch.Tensor) -> float:
        """Expected variance of all outputs, over elements and passes."""
        x = x.double()
        second = (1 - self.p) * x.square().mean().item() + self.p * self.d**2
        return self.a**2 * (second - ((1 - self.p) * x.mean().item() + self.p * self.d) ** 2)

    def unit_variance(self, x: torch.Tensor) -> torch.Tensor:
        """Variance over passes, for each element."""
        return self.a**2 * self.p * (1 - self.p) * (x.double() - self.d).square()


def law_of(module: str, p: float) -> Law:
    """The law of a form. At p = 1 torch returns zeros, AlphaDropout included."""
    if p == 1:
        return Law(1.0, 0.0, 0.0, 1.0)
    if module != "AlphaDropout":
        return Law(1 / (1 - p), 0.0, 0.0, p)
    a = 1 / math.sqrt((1 - p) * (1 + p * ALPHA_PRIME**2))
    return Law(a, -a * p * ALPHA_PRIME, ALPHA_PRIME, p)
