"""BatchNorm against plain Python arithmetic and finite differences; wrong BatchNorms are caught."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
import torch
from torch import nn

from lab.experiments.train_eval.studies.batchnorm_freezing import read_recomputed, read_treatments
from lab.experiments.train_eval.studies.batchnorm_gaps import serving_rows, size_rows
from lab.experiments.train_eval.studies.batchnorm_trace import NormSettings, gradient_by_formula, trace_batches
from lab.experiments.train_eval.studies.norm_reach import LAYERS, SIDE, C, N, read_reach
from lab.records.modes_batchnorm import BatchRow
from lab.workloads.channel_batches import batch_of, channel_means, channel_stds

SETTINGS = NormSettings("BatchNorm1d", 3, 1e-5, 0.1, True, True)


def settings(**changes: Any) -> NormSettings:
    return NormSettings(**{**vars(SETTINGS), **changes})


def trace(layer: nn.Module, shape: tuple[int, ...], count: int = 6) -> tuple[list[torch.Tensor], tuple[BatchRow, ...]]:
    torch.manual_seed(0)
    batches = [batch_of(shape, torch.float64) for _ in range(count)]
    return batches, trace_batches(layer.double(), batches, batch_of(shape, torch.float64))  # type: ignore[arg-type]


def disagreements(
    batches: list[torch.Tensor], rows: tuple[BatchRow, ...], momentum: float | None, eps: float
) -> list[str]:
    """What differs from a plain loop over Python numbers, by name."""
    found, channels = [], batches[0].shape[1]
    running = [[0.0, 1.0] for _ in range(channels)]
    for number, (x, row) in enumerate(zip(batches, rows, strict=True), 1):
        for c in range(channels):
            values = x[:, c].flatten().tolist()
            mean, biased, unbiased = statistics.fmean(values), statistics.pvariance(values), statistics.variance(values)
            weight = 1 / number if momentum is None else momentum
            running[c] = [
                (1 - weight) * old + weight * new for old, new in zip(running[c], (mean, unbiased), strict=True)
            ]
            assert row.running_mean
            assert row.running_var
            expected = {
                "batch_mean": (row.batch_mean[c], mean),
                "batch_var_biased": (row.batch_var_biased[c], biased),
                "batch_var_unbiased": (row.batch_var_unbiased[c], unbiased),
                "running_mean": (row.running_mean[c], running[c][0]),
                "running_var": (row.running_var[c], running[c][1]),
                "train_std": (row.train_std[c], math.sqrt(biased / (biased + eps))),
                "eval_std": (row.eval_std[c], math.sqrt(biased / (running[c][1] + eps))),
                "eval_mean": (row.eval_mean[c], (mean - running[c][0]) / math.sqrt(running[c][1] + eps)),
            }
            found += [
                name for name, (got, want) in expected.items() if got != pytest.approx(want, rel=1e-10, abs=1e-10)
            ]
        if row.formula_error > 1e-12:
            found.append("formula_error")
        if row.gradient_error > 1e-10:
            found.append("gradient_error")
    return found


@pytest.mark.parametrize("momentum", [0.1, 0.0, 1.0, None])
@pytest.mark.parametrize(("module", "shape"), [("BatchNorm1d", (5, 3)), ("BatchNorm2d", (2, 3, 2, 3))])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_every_batch_agrees_with_plain_arithmetic(
    module: str, shape: tuple[int, ...], momentum: float | None, eps: float
) -> None:
    layer = settings(module=module, momentum=momentum, eps=eps).make()
    batches, rows = trace(layer, shape)
    assert disagreements(batches, rows, momentum, eps) == []
    assert [row.num_batches_tracked for row in rows] == list(range(1, 7))
    assert {row.values for row in rows} == {batches[0].numel() // 3}


class StoresBiased(nn.BatchNorm1d):
    """Stores the variance that it normalises with."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.running_var is not None
        before = self.running_var.clone()
        y = super().forward(x)
        if self.training:
            self.running_var = (1 - self.momentum) * before + self.momentum * x.detach().var(0, correction=0)  # type: ignore[operator]
        return y


class MomentumOfOld(nn.BatchNorm1d):
    """momentum as other libraries mean it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, momentum=0.9)


class NormalisesUnbiased(nn.BatchNorm1d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y * math.sqrt(1 - 1 / len(x)) if self.training else y


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (StoresBiased(3), {"running_var", "eval_std", "eval_mean"}),
        (MomentumOfOld(3), {"running_mean", "running_var", "eval_std", "eval_mean"}),
        (NormalisesUnbiased(3), {"train_std", "formula_error", "gradient_error"}),
    ],
    ids=["stores biased", "momentum of old", "normalises unbiased"],
)
def test_a_wrong_batchnorm_is_named(wrong: nn.Module, named: set[str]) -> None:
    batches, rows = trace(wrong, (5, 3))
    assert set(disagreements(batches, rows, 0.1, 1e-5)) == named


def test_the_gradient_formula_agrees_with_finite_differences() -> None:
    torch.manual_seed(1)
    x, g = torch.randn(4, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    layer = nn.BatchNorm1d(2, dtype=torch.float64)
    by_hand, h = gradient_by_formula(x, g, layer.eps), 1e-6
    for i in range(4):
        for c in range(2):
            moved = [x.clone(), x.clone()]
            moved[0][i, c] += h
            moved[1][i, c] -= h
            up, down = ((layer(m) * g).sum().item() for m in moved)
            assert by_hand[i, c].item() == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-8)


def test_without_running_statistics_both_modes_agree() -> None:
    _, rows = trace(settings(track_running_stats=False).make(), (5, 3))
    assert {(row.running_mean, row.running_var, row.num_batches_tracked, row.weight_of_batch) for row in rows} == {
        (None,) * 4
    }
    assert {row.mode_gap for row in rows} == {0.0}


def test_one_value_a_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        trace(SETTINGS.make(), (1, 3))
    _, rows = trace(settings(module="BatchNorm2d").make(), (1, 3, 2, 2))
    assert rows[0].values == 4


@pytest.mark.parametrize("module", ["BatchNorm1d", "BatchNorm2d"])
def test_the_ratio_of_both_modes(module: str) -> None:
    like = torch.zeros((), dtype=torch.float64)
    rows = size_rows(settings(module=module, eps=1e-15), (1, 2, 3, 8, 256), 2, like, seed=0)
    one, *others = rows
    assert (one.ratio is None) == (module == "BatchNorm1d")
    for row in others:
        n = row.batch * (4 if module == "BatchNorm2d" else 1)
        assert row.values == n
        assert row.ratio == pytest.approx(math.sqrt((n - 1) / n), abs=1e-13)  # ε is nothing here
        assert row.limit == pytest.approx(row.predicted, abs=1e-13)
        assert row.worst_error is not None
        assert row.worst_error < 1e-13


def test_a_layer_that_stores_the_biased_variance_has_ratio_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NormSettings, "make", lambda self: StoresBiased(self.channels, momentum=self.momentum))
    (row,) = size_rows(SETTINGS, (4,), 1, torch.zeros((), dtype=torch.float64), seed=0)
    assert row.ratio == pytest.approx(1.0)
    assert row.worst_error is not None
    assert row.worst_error > 0.1


def test_the_serving_gap_follows_from_moments_and_moves_nothing() -> None:
    torch.manual_seed(0)
    layer = SETTINGS.make().double()
    for _ in range(20):
        layer(batch_of((8, 3), torch.float64))
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    rows = serving_rows(layer, batch_of((256, 3), torch.float64), 0.25, 1.5)
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    assert 0.25 in [row.shift for row in rows]
    for row in rows:
        assert row.gap == pytest.approx(row.predicted, rel=1e-12)
    wide = {row.shift: row.gap for row in rows}
    assert wide[4.0] > wide[2.0] > wide[0.5]


def test_batches_have_the_moments_that_they_promise() -> None:
    torch.manual_seed(0)
    x = batch_of((200_000, 3), torch.float64)
    assert torch.allclose(x.mean(0), channel_means(3, torch.float64), atol=0.02)
    assert torch.allclose(x.std(0), channel_stds(3, torch.float64), atol=0.02)


def test_what_each_treatment_moves() -> None:
    rows = {row.name: row for row in read_treatments(3, 8, 0, "cpu")}
    counted = {name: row.batches_counted for name, row in rows.items()}
    assert counted == {
        "train mode": 1,
        "requires_grad=False": 1,
        "extra forward, no_grad": 1,
        "checkpoint": 2,
        "two micro-batches": 2,
        "eval()": 0,
        "eval(), then model.train()": 1,
        "frozen properly": 0,
        "momentum=0": 1,
        "empty state dict": 0,
        "state dict without counter": 0,
        "batch of one": 1,  # counted before it is refused
        "untracked, eval(), batch of one": 0,
    }
    still = {name for name, row in rows.items() if row.mean_moved == 0}
    assert still >= {"eval()", "frozen properly", "momentum=0", "empty state dict", "batch of one"}
    assert {name for name, row in rows.items() if row.weight_gradient} == {
        *("train mode", "checkpoint", "two micro-batches", "eval()", "momentum=0"),
    }
    assert "Missing key(s)" in rows["state dict without counter"].error
    assert {name for name, row in rows.items() if "more than 1 value" in row.error} == {
        *("batch of one", "untracked, eval(), batch of one"),
    }
    same_output = {name for name, row in rows.items() if row.output_gap is not None and row.output_gap < 1e-12}
    assert {"train mode", "requires_grad=False", "checkpoint", "momentum=0"} <= same_output
    assert not same_output & {"two micro-batches", "eval()", "frozen properly"}


def test_checkpointing_moves_the_mean_twice_as_one_batch_stored_twice() -> None:
    """Stored twice with momentum 0.1: the distance to the batch mean shrinks by 0.9², so the move is 1.9 times as far."""
    rows = {row.name: row for row in read_treatments(3, 8, 0, "cpu")}
    assert rows["checkpoint"].mean_moved == pytest.approx(1.9 * rows["train mode"].mean_moved, rel=1e-9)


def test_recomputed_statistics_are_the_mean_of_the_data() -> None:
    again = read_recomputed(3, 8, 12, 0, "cpu")
    assert again.running_mean == pytest.approx(again.data_mean, abs=1e-12)
    assert again.before != pytest.approx(again.data_mean, abs=1e-3)


EXPECTED_REACH = {  # (samples, channels) that share statistics with sample 0, channel 0, as the papers define the axes
    "BatchNorm2d": (range(N), range(1)),
    "LayerNorm": (range(1), range(C)),
    "GroupNorm": (range(1), range(C // 2)),
    "InstanceNorm2d": (range(1), range(1)),
    "RMSNorm": (range(1), range(C)),
}


@pytest.mark.parametrize("row", read_reach(0, "cpu"), ids=lambda row: f"{row.layer}, {row.mode}")
def test_shared_statistics_are_the_reduced_axes(row: Any) -> None:
    samples, channels = EXPECTED_REACH[row.layer]
    stored = row.layer == "BatchNorm2d" and row.mode == "eval"
    full = 1.0 / SIDE**2 if stored else 1.0
    expected = [
        [full if (s == c == 0 if stored else s in samples and c in channels) else 0.0 for c in range(C)]
        for s in range(N)
    ]
    assert [list(shares) for shares in row.shares] == [pytest.approx(line) for line in expected]
    if not stored and row.layer != "RMSNorm":
        assert row.mean == pytest.approx(0, abs=1e-12)
        assert row.std == pytest.approx(1, abs=1e-4)
    if row.layer == "RMSNorm":
        assert row.mean**2 + row.std**2 == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm", "GroupNorm"])
def test_the_other_norms_are_their_formula(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(N, C, SIDE, SIDE, dtype=torch.float64) * 3 + 1
    y = LAYERS[name]().double()(x)
    groups = x.reshape(N, 2, -1) if name == "GroupNorm" else x.reshape(N, 1, -1)
    mean = 0.0 if name == "RMSNorm" else groups.mean(2, keepdim=True)
    eps = torch.finfo(torch.float64).eps if name == "RMSNorm" else 1e-5
    by_hand = (groups - mean) / ((groups - mean).square().mean(2, keepdim=True) + eps).sqrt()
    assert torch.allclose(y, by_hand.reshape(x.shape), atol=1e-12)
    assert not torch.allclose(y, by_hand.reshape(x.shape) * 1.001, atol=1e-12)
