"""The matrix of both switches and the scan of a model, against hand counts, formulas and another instrument."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lab.contract import Lesson, silent
from lab.experiments.train_eval import explain, lessons, run
from lab.experiments.train_eval.studies.forgotten_eval import BATCHES, read_forgotten_eval
from lab.experiments.train_eval.studies.switches import read_switches
from lab.instruments.modes.scan import reads_training, scan_modes
from lab.records.modes_models import ModelScan, SwitchRow
from lab.workloads.mode_models import convnet, small_net, transformer
from lab.workloads.spirals import spirals

BATCH, P = 12, 0.4


@pytest.fixture(scope="module")
def matrix() -> dict[tuple[str, str], SwitchRow]:
    torch.manual_seed(0)
    rows = read_switches(lambda: small_net(P), torch.randn(BATCH, 8), seed=5)
    return {(row.mode, row.gradients): row for row in rows}


def test_the_mode_decides_what_is_computed(matrix: dict[tuple[str, str], SwitchRow]) -> None:
    assert len(matrix) == 6
    for (mode, _), row in matrix.items():
        train = mode == "train"
        assert (row.dropped_fraction > 0, row.output_spread > 0, row.statistics_moved) == (train, train, train)
        assert row.batches_counted == train
    for mode in ("train", "eval"):
        assert len({row.output for (m, _), row in matrix.items() if m == mode}) == 1


def test_recording_decides_what_is_kept(matrix: dict[tuple[str, str], SwitchRow]) -> None:
    for (_, gradients), row in matrix.items():
        on = gradients == "grad"
        assert (row.requires_grad, bool(row.graph), row.graph_nodes > 0, row.saved_bytes > 0) == (on, on, on, on)
        assert ("does not require grad" in row.backward_error) == (not on)
        assert row.is_inference == (gradients == "inference_mode")
        assert row.forward_s > 0


def test_bytes_kept_are_those_counted_by_hand(matrix: dict[tuple[str, str], SwitchRow]) -> None:
    wide = BATCH * 16 * 4  # one float32 activation of the hidden layer
    weights, statistics = 16 * 4 * 4, 16 * 4
    shared = BATCH * 8 * 4 + wide + weights  # input of the first layer; input of BatchNorm; weight of the last layer
    # eval: BatchNorm keeps weight, running mean and variance; ReLU's output is the last layer's input
    assert matrix["eval", "grad"].saved_bytes == shared + 3 * statistics + wide
    # train: the batch's mean and 1/std besides; the mask; the dropped output, which is the last layer's input
    assert matrix["train", "grad"].saved_bytes == shared + 5 * statistics + 3 * wide


def test_the_output_of_eval_mode_by_hand(matrix: dict[tuple[str, str], SwitchRow]) -> None:
    torch.manual_seed(0)
    x = torch.randn(BATCH, 8)
    torch.manual_seed(5)
    net = small_net(P).double()
    first, last = net[0], net[4]
    h = x.double() @ first.weight.T + first.bias  # type: ignore[operator]
    h = (h / math.sqrt(1 + 1e-5)).clamp(min=0)  # running mean 0 and variance 1; dropout does nothing
    y = h @ last.weight.T + last.bias  # type: ignore[operator]
    assert matrix["eval", "grad"].output == pytest.approx(y[0].tolist(), abs=1e-6)
    assert matrix["train", "grad"].output != pytest.approx(y[0].tolist(), abs=1e-3)


def scan(model: nn.Module, x: torch.Tensor, **more) -> ModelScan:
    return scan_modes(model, lambda: model(x), seed=0, file="", device="cpu", **more)


def test_the_gap_of_dropout_is_its_standard_deviation() -> None:
    """y = x + noise with variance x²·p/(1 − p): the relative distance is √(p/(1 − p)) = 1/2 at p = 0.2."""
    found = scan(nn.Sequential(nn.Dropout(0.2), nn.Identity()), torch.ones(100, 200))
    (row,) = found.modules
    assert row.gap == pytest.approx(0.5, rel=0.02)
    assert found.gap_together == row.gap
    assert found.eval_spread == 0
    assert found.ignoring == ()


def test_the_gap_of_batchnorm_is_the_formula() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 3) * 2 + 1
    (row,) = scan(nn.Sequential(nn.BatchNorm1d(3)), x).modules
    stored = x.double() / math.sqrt(1 + 1e-5)
    batch = (x.double() - x.double().mean(0)) / (x.double().var(0, correction=0) + 1e-5).sqrt()
    assert row.gap == pytest.approx(((batch - stored).square().mean() / stored.square().mean()).sqrt().item(), rel=1e-5)
    assert row.statistics_moved


def test_looking_changes_nothing() -> None:
    torch.manual_seed(0)
    model, x, _ = convnet(0.5, 8)
    model.norm1.eval()  # type: ignore[union-attr]
    modes = [m.training for m in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    found = scan(model, x)
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert (found.in_train_mode, found.in_eval_mode) == (sum(modes), len(modes) - sum(modes))
    assert {row.path: row.training for row in found.modules} == {"norm1": False, "norm2": True, "drop": True}


@pytest.mark.parametrize(
    ("make", "function", "argument", "module"),
    [
        (convnet, "F.dropout", "training=True", "(ConvNet)"),
        (transformer, "F.scaled_dot_product_attention", "dropout_p=0.5", "(Attention)"),
    ],
)
def test_what_ignores_eval_is_named(make, function: str, argument: str, module: str) -> None:
    torch.manual_seed(0)
    model, x, _ = make(0.5, 8)
    found = scan(model, x)
    assert [(call.function, call.argument, call.module) for call in found.ignoring] == [(function, argument, module)]
    assert found.eval_spread > 0.01
    model.p = 0.0  # the repair
    assert scan(model, x).eval_spread == 0
    assert scan(model, x).ignoring == ()


class Noisy(nn.Module):
    """Random in forms that have no training argument."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.norm = kind, nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "randn_like":
            return x + torch.randn_like(x)
        if self.kind == "bernoulli":
            return x * torch.bernoulli(torch.full_like(x, 0.5))
        if self.kind == "batch_norm":
            return F.batch_norm(x, None, None, training=True)
        return self.norm(x) if self.kind == "untracked" else x


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [
        ("randn_like", ["random"]),
        ("bernoulli", ["random"]),
        ("batch_norm", ["batch statistics"]),
        ("untracked", ["batch statistics"]),
        ("calm", []),
    ],
)
def test_other_things_that_ignore_eval(kind: str, kinds: list[str]) -> None:
    assert [call.kind for call in scan(Noisy(kind), torch.randn(6, 4)).ignoring] == kinds


def test_which_classes_read_the_mode() -> None:
    assert all(
        map(reads_training, (nn.Dropout, nn.BatchNorm2d, nn.RReLU, nn.LSTM, nn.MultiheadAttention, nn.InstanceNorm1d))
    )
    assert not any(map(reads_training, (nn.Linear, nn.ReLU, nn.LayerNorm, nn.GroupNorm, nn.Sequential, nn.Conv2d)))


@pytest.mark.parametrize(
    "model",
    [nn.LSTM(4, 4, 2, dropout=0.5), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True)],
    ids=["LSTM", "TransformerEncoderLayer"],
)
def test_torch_modules_with_dropout_inside(model: nn.Module) -> None:
    x = torch.randn(5, 7, 4)
    found = scan_modes(
        model, lambda: out[0] if isinstance(out := model(x), tuple) else out, seed=0, file="", device="cpu"
    )
    assert found.gap_together > 0.01
    assert found.eval_spread == 0
    assert sum(row.gap > 0.01 for row in found.modules) == {"LSTM": 1}.get(type(model).__name__, 4)
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_forgotten_eval_costs_what_a_plain_evaluation_says() -> None:
    net, inputs, cost = read_forgotten_eval(0.3, 0, "cpu")
    rows = {(row.kind, row.batch): row for row in cost.rows}
    right = rows["eval", 128]
    points, arms = spirals(cost.test_points, 1)
    with torch.no_grad():
        logits = net.eval()(points)
    assert right.accuracy == pytest.approx((logits.argmax(1) == arms).double().mean().item())
    assert right.loss == pytest.approx(F.cross_entropy(logits, arms).item(), rel=1e-5)
    assert torch.equal(inputs, points[:128])
    assert right.accuracy > 0.95
    by_size = [rows["train", batch].accuracy for batch in BATCHES]
    assert by_size == sorted(by_size)
    assert by_size[0] < right.accuracy - 0.2
    assert rows["sorted_in_train", 128].accuracy < 0.7
    assert rows["eval_after_sorted", 128].loss > right.loss
    only_dropout = rows["dropout_in_train", 128].accuracy
    assert only_dropout > rows["train", 2].accuracy


@pytest.mark.parametrize(
    "lesson", [each for each in lessons if each.params.study == "forgotten eval"], ids=lambda each: each.title
)
def test_captions_of_a_forgotten_eval_may_be_renamed(lesson: Lesson) -> None:
    result = run(lesson.params, silent)
    assert result.scan
    assert result.scan.cost
    rows = tuple(replace(row, setting=f"caption {n}") for n, row in enumerate(result.scan.cost.rows))
    renamed = replace(result, scan=replace(result.scan, cost=replace(result.scan.cost, rows=rows)))
    assert lesson.answer(renamed) == lesson.answer(result)
    assert explain(renamed) == explain(result)
