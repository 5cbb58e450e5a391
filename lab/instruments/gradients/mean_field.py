"""How norms change from layer to layer in a wide random network, without running one.

With W_ij ~ N(0, σw²/width) and b_i ~ N(0, σb²), the mean square q of what enters the activation, and the mean square of
the gradient, go from one layer to the next by (z standard normal)

    q' = σw² · E[φ(√q z)²] + σb²        χ = σw² · E[φ'(√q z)²]

so that a gradient's norm changes by ½ · log10 χ decades a layer on its way back. χ < 1 vanishes, χ > 1 explodes.
Schoenholz, Gilmer, Ganguli, Sohl-Dickstein 2017, "Deep Information Propagation", equations 3 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

Function = Callable[[torch.Tensor], torch.Tensor]
SCALE_FREE: dict[str, float] = {"identity": 1.0, "relu": 0.5, "leaky_relu": (1 + 0.01**2) / 2}
"""Closed form: φ is linear on each side of zero, so E[φ²] = c · q and E[φ'²] = c."""
_NODES, _REACH, _LARGEST = 200, 12.0, 1e30
_SETTLED, _MOST_LAYERS = 1e-10, 500


@dataclass(frozen=True)
class Propagation:
    """``q[l]`` enters the activation of layer l (from 0); ``chi[l]`` is what that layer does to a gradient's mean square."""

    q: tuple[float, ...]
    chi: tuple[float, ...]
    fixed_q: float
    fixed_chi: float
    """Where both end up in an infinitely deep network; q may grow without limit."""


def moments(activation: str, function: Function, q: float) -> tuple[float, float]:
    """(E[φ(√q z)²], E[φ'(√q z)²]) in closed form or by quadrature in float64."""
    if activation in SCALE_FREE:
        return SCALE_FREE[activation] * q, SCALE_FREE[activation]
    z, weight = _gaussian()
    x = (math.sqrt(q) * z).requires_grad_()
    with torch.enable_grad():
        y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return float(weight @ y.detach().square()), float(weight @ slope.square())


def propagate(
    activation: str, function: Function, *, sigma_w2: float, sigma_b2: float, input_square: float, depth: int
) -> Propagation:
    """``input_square``: the mean square of the network's input."""
    q, chi, square = [], [], input_square
    for _ in range(depth):
        q.append(min(sigma_w2 * square + sigma_b2, _LARGEST))
        square, slope_square = moments(activation, function, q[-1])
        chi.append(sigma_w2 * slope_square)
    return Propagation(tuple(q), tuple(chi), *_fixed_point(activation, function, sigma_w2, sigma_b2, q[-1]))


def _fixed_point(
    activation: str, function: Function, sigma_w2: float, sigma_b2: float, q: float
) -> tuple[float, float]:
    for _ in range(_MOST_LAYERS):
        square, slope_square = moments(activation, function, q)
        following = min(sigma_w2 * square + sigma_b2, _LARGEST)
        if abs(following - q) <= _SETTLED * max(q, _SETTLED) or activation in SCALE_FREE:
            break
        q = following
    return q, sigma_w2 * slope_square


@cache
def _gaussian() -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes and weights of E[f(z)]: Gauss-Legendre on either side of zero, where activations have their kink."""
    k = torch.arange(1, _NODES, dtype=torch.float64, device="cpu")
    beta = k / (4 * k**2 - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(beta, 1) + torch.diag(beta, -1))  # Golub, Welsch 1969
    half, weight = (nodes + 1) / 2 * _REACH, vectors[0].square() * _REACH
    z, weight = torch.cat([-half.flip(0), half]), torch.cat([weight.flip(0), weight])
    return z, weight * torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
