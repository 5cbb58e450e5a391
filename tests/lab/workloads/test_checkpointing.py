"""Every list of blocks can be checkpointed, whatever its blocks are, and the gradients stay the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lab.workloads.checkpointing import Segments, are_equal, block_lists, blocks_of, under_checkpoint


class Scaled(nn.Module):
    """Takes keyword arguments, gives a tuple."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x, *, scale=1.0, mask=None):
        y = x + scale * self.inner(x)
        return (y if mask is None else y * mask), y.detach().mean()


class Mixed(nn.Module):
    """Blocks of several classes and widths in a list that the model walks through itself."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList([Scaled(8), nn.Sequential(nn.Linear(8, 12), nn.Tanh()), nn.Linear(12, 8), Scaled(8)])

    def forward(self, x):
        for step in self.steps:
            x = step(x, scale=0.5, mask=torch.ones(8))[0] if isinstance(step, Scaled) else step(x)
        return x


class Stages(nn.Module):
    """Two lists of blocks one after the other, as a ResNet has stages."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2)))
        self.second = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)))
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x):
        return self.head(self.second(self.first(x)))


class OwnSequential(nn.Sequential):
    """Its forward is not that of nn.Sequential."""

    def forward(self, x):
        for part in self:
            x = x + part(x)
        return x


class Dictionary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({name: nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for name in "ab"})

    def forward(self, x):
        return self.parts["b"](self.parts["a"](x))


MODELS = {
    "several classes": (Mixed, 4),
    "two stages": (Stages, 5),
    "a forward of its own": (lambda: OwnSequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))), 3),
    "dictionary": (Dictionary, 2),
    "layers only": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)), 3),
    "blocks inside a sequence": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))), nn.Linear(8, 8)),
        3,
    ),
}  # fmt: skip


def gradients(model: nn.Module) -> list[torch.Tensor]:
    model(torch.linspace(-1, 1, 32).view(4, 8)).square().sum().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("how", ["every", "all", "chosen"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_stay_and_segments_are_counted(name, how):
    make, blocks = MODELS[name]
    torch.manual_seed(0)
    plain = make()
    checked = copy.deepcopy(plain)
    names = [n for n, _ in checked.named_modules()]
    segments = under_checkpoint(checked, how, 1, False, chosen=range(1, 99))
    assert not segments.ran
    expected, found = gradients(plain), gradients(checked)
    assert len(expected) == len(found)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert len(blocks_of(checked)) == blocks
    assert [n for n, _ in checked.named_modules()] == names
    if how == "all":
        assert 1 <= len(segments.ran) <= blocks
    else:
        assert len(segments.ran) == blocks - (how == "chosen")


def test_segments_of_two_in_a_sequence():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(5)))
    segments = under_checkpoint(model, "every", 2, False)
    gradients(model)
    assert len(segments.ran) == 3


def test_a_list_that_never_runs_has_no_segment():
    model = Stages()
    model.first = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    model.forward = lambda x: model.head(model.second(x))
    segments = under_checkpoint(model, "every", 1, False)
    gradients(model)
    assert len(segments.ran) == 3


def test_without_gradients_nothing_is_checkpointed():
    model = Stages()
    segments = under_checkpoint(model, "every", 1, False)
    with torch.no_grad():
        model(torch.zeros(2, 8))
    assert not segments.ran


def test_a_model_without_lists():
    assert block_lists(nn.Linear(2, 2)) == []
    assert isinstance(under_checkpoint(nn.Linear(2, 2), "every", 1, False), Segments)


def test_a_planted_second_forward_without_checkpoint_changes_the_count():
    model = Mixed()
    segments = under_checkpoint(model, "every", 1, False)
    del model.steps[0].forward  # as if the block had been left out
    gradients(model)
    assert len(segments.ran) == 3


def test_equal_blocks():
    assert are_equal(nn.Linear(2, 2), nn.Linear(2, 2))
    assert not are_equal(nn.Linear(2, 2), nn.Linear(2, 3))
