"""The first operation that left the finite numbers."""

from __future__ import annotations

import torch

from lab.instruments.gradients.first_nonfinite import ForwardSearch, search_backward
from lab.records.gradients import FirstNonfinite


def forward(function) -> FirstNonfinite | None:
    search = ForwardSearch(lambda: "here")
    with search:
        function()
    return search.found


def test_an_exponential_that_overflows_and_what_follows():
    def run() -> None:
        y = torch.tensor([100.0]).exp()
        (y - y).log()

    assert forward(run) == FirstNonfinite("here", "exp", "forward", "infinity")


def test_a_mask_of_minus_infinity_is_no_fault_but_a_row_without_anything_is():
    scores = torch.zeros(2, 3)
    mask = torch.tensor([[True, False, False], [False, False, False]])
    assert forward(lambda: scores.masked_fill(mask, float("-inf")).softmax(1)) is None
    mask[0] = True
    found = forward(lambda: scores.masked_fill(mask, float("-inf")).softmax(1))
    assert found == FirstNonfinite("here", "softmax", "forward", "NaN")


def test_finite_operations_find_nothing():
    assert forward(lambda: torch.tensor([1.0]).log().exp().sqrt()) is None


def test_a_derivative_that_is_infinite():
    search = ForwardSearch(lambda: "here")
    with search:
        x = torch.tensor([0.0, 1.0], requires_grad=True)
        loss = (x * 2).sqrt().sum()
    assert search.found is None
    assert search_backward(loss, search.layers) == FirstNonfinite("here", "backward of sqrt", "backward", "infinity")


def test_a_healthy_backward_finds_nothing_and_leaves_no_hook():
    x = torch.tensor([1.0], requires_grad=True)
    loss = x.sqrt().sum()
    assert search_backward(loss, {}) is None
