"""Positions of elements and the rule of ``view``, against torch; a planted error is caught by each."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch

from lab.experiments.tensor_anatomy.layout import broadcast, broken_pair, flat_positions, is_contiguous, permutation


def strided(count: int, seed: int = 0) -> Iterator[torch.Tensor]:
    """Permuted, sliced and expanded tensors."""
    pick = random.Random(seed)
    for _ in range(count):
        dims = pick.randint(1, 4)
        tensor = torch.arange(4000)[: 6**dims]
        sizes = [pick.choice([1, 2, 3, 4, 6]) for _ in range(dims)]
        count_all = 1
        for size in sizes:
            count_all *= size
        tensor = torch.arange(count_all).reshape(sizes)
        order = list(range(dims))
        pick.shuffle(order)
        if pick.random() < 0.7:
            tensor = tensor.permute(order)
        if pick.random() < 0.3:
            tensor = tensor[tuple(slice(None, None, pick.choice([1, 2])) for _ in range(dims))]
        if pick.random() < 0.2:
            tensor = tensor[:1].expand(3, *tensor.shape[1:])
        yield tensor


def asked(tensor: torch.Tensor, pick: random.Random) -> list[int]:
    """Some other shape for as many elements."""
    left, sizes = tensor.numel(), []
    while left > 1 and len(sizes) < 4:
        sizes.append(pick.choice([k for k in range(1, left + 1) if left % k == 0]))
        left //= sizes[-1]
    return [*sizes, left] if left > 1 else sizes


def in_memory(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


def wrong_positions(forget_offset: bool) -> int:
    wrong = 0
    for tensor in strided(400):
        shown = tensor[..., 1:] if tensor.shape[-1] > 1 else tensor
        offset = 0 if forget_offset else int(shown.storage_offset())
        at = flat_positions(shown.shape, shown.stride(), offset)
        wrong += not torch.equal(in_memory(shown)[at].reshape(shown.shape), shown)
    return wrong


def test_positions_read_the_tensor_from_its_memory():
    assert wrong_positions(forget_offset=False) == 0


def test_a_forgotten_offset_is_caught():
    assert wrong_positions(forget_offset=True) > 50


def wrong_verdicts(planted: bool) -> tuple[int, int]:
    """(wrong, refused by torch)."""
    pick, wrong, refused = random.Random(1), 0, 0
    for tensor in strided(2000, seed=2):
        shape = asked(tensor, pick)
        try:
            tensor.view(shape)
            works = True
        except RuntimeError:
            works = False
        refused += not works
        said = tensor.is_contiguous() if planted else broken_pair(tensor.shape, tensor.stride(), shape) is None
        wrong += said != works
    return wrong, refused


def test_the_rule_of_view_agrees_with_torch():
    wrong, refused = wrong_verdicts(planted=False)
    assert wrong == 0
    assert refused > 300


def test_contiguous_is_not_the_rule():
    assert wrong_verdicts(planted=True)[0] > 100


def test_contiguous_is_read_from_strides():
    assert all(is_contiguous(t.shape, t.stride()) == t.is_contiguous() for t in strided(500, seed=3))


@pytest.mark.parametrize(("a", "b"), [((4,), (4, 1)), ((3, 1, 2), (5, 1)), ((2, 3), (3,)), ((), (2,))])
def test_common_shapes(a: tuple[int, ...], b: tuple[int, ...]):
    assert broadcast(a, b) == tuple(torch.broadcast_shapes(a, b))


def test_shapes_that_do_not_fit():
    assert broadcast((2, 3), (4, 3)) is None


@pytest.mark.parametrize(
    ("old", "new", "order"),
    [((2, 3), (3, 2), (1, 0)), ((3, 2, 2), (2, 2, 3), (1, 2, 0)), ((1, 4), (4, 1), None), ((2, 3), (6,), None), ((2, 2), (2, 2), None)],
)  # fmt: skip
def test_sizes_in_another_order(old: tuple[int, ...], new: tuple[int, ...], order: tuple[int, ...] | None):
    found = permutation(old, new)
    assert found == order
    if found:
        assert tuple(torch.empty(old).permute(found).shape) == new
