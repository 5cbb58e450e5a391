"""The theory of wide networks: closed forms, an independent sum, limits."""

from __future__ import annotations

import math

import pytest
import torch

from lab.instruments.gradients.mean_field import moments, propagate
from lab.workloads.deep_networks import ACTIVATIONS


def sums(function, q: float, slope=lambda s: s**2) -> tuple[float, float]:
    """The two expectations by a plain Riemann sum and central differences: no shared code."""
    h = 1e-4
    z = torch.arange(-10, 10, 2e-4, dtype=torch.float64) + 1e-4
    weight = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * 2e-4
    x = math.sqrt(q) * z
    derivative = (function(x + h) - function(x - h)) / (2 * h)
    return float((weight * function(x) ** 2).sum()), float((weight * slope(derivative)).sum())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("q", [0.01, 0.7, 9.0])
def test_moments_equal_a_plain_sum(activation, q):
    function = ACTIVATIONS[activation]()
    assert moments(activation, function, q) == pytest.approx(sums(function, q), rel=5e-4)
    if activation not in ("identity", "relu"):  # alive: the mean slope instead of its square is another number
        assert moments(activation, function, q)[1] != pytest.approx(sums(function, q, lambda s: s)[1], rel=2e-3)


@pytest.mark.parametrize("q", [0.3, 5.0])
def test_quadrature_meets_the_closed_forms(q):
    for name, c in (("relu", 0.5), ("leaky_relu", (1 + 0.01**2) / 2), ("identity", 1.0)):
        assert moments(name, ACTIVATIONS[name](), q) == pytest.approx((c * q, c))
        assert moments("unknown", ACTIVATIONS[name](), q) == pytest.approx((c * q, c), rel=1e-9)


def test_the_closed_form_of_tanh_like_erf():
    """E[erf(√q z)²] = 2/π · asin(2q / (1 + 2q)) (Williams 1997)."""
    for q in (0.2, 1.0, 4.0):
        found, _ = moments("unknown", torch.erf, q)
        assert found == pytest.approx(2 / math.pi * math.asin(2 * q / (1 + 2 * q)), rel=1e-9)


def test_chi_of_relu_is_half_of_sigma_w2():
    found = propagate("relu", torch.relu, sigma_w2=1 / 3, sigma_b2=0.0, input_square=1.0, depth=3)
    assert found.chi == pytest.approx([1 / 6] * 3)
    assert found.q == pytest.approx([1 / 3, 1 / 3 / 6, 1 / 3 / 36])


def test_the_fixed_point_is_one_and_tanh_is_critical_at_sigma_w_1():
    found = propagate("tanh", torch.tanh, sigma_w2=2.0, sigma_b2=0.05, input_square=1.0, depth=5)
    square, slope = moments("tanh", torch.tanh, found.fixed_q)
    assert 2.0 * square + 0.05 == pytest.approx(found.fixed_q, rel=1e-6)
    assert 2.0 * slope == pytest.approx(found.fixed_chi, rel=1e-6)
    critical = propagate("tanh", torch.tanh, sigma_w2=1.0, sigma_b2=0.0, input_square=1.0, depth=5)
    assert 0.99 < critical.fixed_chi < 1
