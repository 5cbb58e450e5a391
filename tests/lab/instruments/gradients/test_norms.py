"""Norms that do not overflow, and shares that underflow."""

from __future__ import annotations

import math

import pytest
import torch

from lab.instruments.gradients.norms import summary, underflow_share


def test_the_four_numbers_against_a_plain_loop():
    parts = [torch.randn(7, 3), torch.randn(5)]
    values = [float(v) for part in parts for v in part.flatten()]
    found = summary(parts)
    assert found is not None
    norm = math.sqrt(math.fsum(v * v for v in values))
    assert (found.norm, found.rms) == pytest.approx((norm, norm / math.sqrt(len(values))))
    assert (found.mean, found.max) == pytest.approx((math.fsum(values) / len(values), max(map(abs, values))))
    assert summary([]) is None
    assert summary([torch.zeros(0)]) is None


@pytest.mark.parametrize(("dtype", "value"), [(torch.float32, 1e30), (torch.float64, 1e300), (torch.float16, 6e4)])
def test_squares_do_not_overflow(dtype, value):
    tensor = torch.full((4,), value, dtype=dtype)
    found = summary([tensor])
    assert found is not None
    assert found.norm == pytest.approx(2 * float(tensor[0]), rel=1e-6)
    assert tensor.square().sum().isinf()  # alive: the definition in the tensor's own dtype overflows


def test_nan_and_infinity_are_data():
    found = summary([torch.tensor([1.0, math.inf]), torch.tensor([math.nan])])
    assert found is not None
    assert math.isnan(found.norm)
    assert math.isnan(found.max)
    found = summary([torch.tensor([1.0, math.inf])])
    assert found is not None
    assert (found.norm, found.max) == (math.inf, math.inf)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # up to torch 2.12
def test_sparse_and_complex_values_count():
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[0, 0, 2]]), torch.tensor([1.0, 2.0, 4.0]), (3,), check_invariants=True
    )
    assert summary([sparse]).norm == pytest.approx(5.0)  # pyright: ignore[reportOptionalMemberAccess] - duplicates add
    assert summary([torch.tensor([3 + 4j])]).norm == pytest.approx(5.0)  # pyright: ignore[reportOptionalMemberAccess]


def test_underflow_follows_the_formats():
    """2^-25 is half of the smallest fp16 number and rounds to even, which is zero; anything above survives."""
    values = torch.tensor([0.0, 2.0**-25, 2.0**-25 * 1.01, 1.0])
    assert underflow_share([values], torch.float16) == pytest.approx(1 / 3)
    assert underflow_share([values], torch.float16, 65536.0) == 0.0
    assert underflow_share([values], torch.bfloat16) == 0.0
    assert underflow_share([torch.zeros(3)], torch.float16) is None
