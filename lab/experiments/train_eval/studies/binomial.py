"""The exact central interval of a binomial count."""

from __future__ import annotations

import math

import torch

LEVEL = 0.999
"""Share of seeds whose count lies inside."""


def binomial_interval(trials: int, p: float, level: float = LEVEL) -> tuple[float, float]:
    """(low, high) as shares of ``trials``: the smallest quantiles with at most (1 - level) / 2 below and above.

    Sums the probabilities over 12 standard deviations around the mean, in float64: exact to about 1e-12 at 10^9 trials.
    """
    if p in (0.0, 1.0):
        return p, p
    reach = 12 * math.sqrt(trials * p * (1 - p)) + 40
    low, high = max(0, math.floor(trials * p - reach)), min(trials, math.ceil(trials * p + reach))
    k = torch.arange(low, high + 1, dtype=torch.float64)
    log_p = (
        math.lgamma(trials + 1)
        - torch.lgamma(k + 1)
        - torch.lgamma(trials - k + 1)
        + k * math.log(p)
        + (trials - k) * math.log1p(-p)
    )
    below = torch.cumsum(log_p.exp(), 0)
    tail = (1 - level) / 2
    first, last = (int((below <= share).sum()) for share in (tail, 1 - tail))
    return (low + first) / trials, (low + min(last, len(k) - 1)) / trials
