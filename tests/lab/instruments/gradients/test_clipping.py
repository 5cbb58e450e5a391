"""Clipping against its definition."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from lab.instruments.gradients.clipping import compare, total_norm


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
def test_the_total_norm_is_that_of_one_long_vector(norm_type):
    torch.manual_seed(0)
    parts = [torch.randn(3, 4), torch.randn(5)]
    joined = torch.cat([p.flatten() for p in parts]).double()
    plain = (
        joined.abs().max().item()
        if math.isinf(norm_type)
        else joined.abs().pow(norm_type).sum().item() ** (1 / norm_type)
    )
    assert total_norm(parts, norm_type) == pytest.approx(plain, rel=1e-6)
    assert total_norm(parts, norm_type) == pytest.approx(nn.utils.get_total_norm(parts, norm_type).item(), rel=1e-5)
    if not math.isinf(norm_type) and norm_type != 1:  # alive: the norms of the parts do not add up
        assert total_norm(parts, norm_type) != pytest.approx(sum(total_norm([p], norm_type) for p in parts), rel=1e-3)


def test_before_and_after_of_torch_itself():
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    before = [parameter.grad.clone()]
    returned = nn.utils.clip_grad_norm_([parameter], 1.0)
    found = compare(before, [parameter.grad])
    assert returned.item() == pytest.approx(found.norm_before) == 5.0
    assert found.norm_after == pytest.approx(1.0, rel=1e-5)
    assert found.cosine == pytest.approx(1.0)
    parameter.grad = torch.tensor([3.0, 0.1])
    before = [parameter.grad.clone()]
    nn.utils.clip_grad_value_([parameter], 0.5)
    found = compare(before, [parameter.grad])
    assert found.cosine == pytest.approx((3 * 0.5 + 0.1 * 0.1) / (math.hypot(3, 0.1) * math.hypot(0.5, 0.1)), rel=1e-6)
    assert found.changed_share == 0.5


def test_what_has_no_direction_has_no_cosine():
    assert compare([torch.ones(2)], [torch.zeros(2)]).cosine is None
    assert compare([torch.tensor([math.inf])], [torch.ones(1)]).cosine is None
    assert total_norm([torch.tensor([math.nan]), torch.tensor([math.inf])], 2.0) != math.inf
    assert total_norm([], 2.0) == 0.0
