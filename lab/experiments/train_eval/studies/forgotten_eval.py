"""What it costs to forget eval(): one trained network, evaluated in every mode."""

from __future__ import annotations

import copy

import torch
from torch import nn

from lab.records.modes_models import CostRow, EvaluationKind, ForgottenEval
from lab.workloads.spirals import evaluate, spirals, trained_net

TEST_POINTS = 1536
BATCHES = (2, 4, 8, 32, 128)
SETTINGS: dict[EvaluationKind, str] = {
    "eval": "eval()",
    "train": "train mode",
    "dropout_in_train": "only Dropout in train",
    "batchnorm_in_train": "only BatchNorm in train",
    "sorted_in_train": "train mode, sorted by class",
    "eval_after_sorted": "eval() after that",
}


def read_forgotten_eval(p: float, seed: int, device: str) -> tuple[nn.Module, torch.Tensor, ForgottenEval]:
    """(the trained network in eval mode, a batch of its test inputs, what each mode costs)."""
    net = trained_net(p, seed, device)
    inputs, arms = (part.to(device) for part in spirals(TEST_POINTS, seed + 1))
    order = arms.argsort(stable=True)
    rows = [_row(net.eval(), "eval", inputs, arms, 128, seed)]
    for batch in BATCHES:
        rows.append(_row(net.train(), "train", inputs, arms, batch, seed))
    rows.append(_row(_only(net, nn.Dropout), "dropout_in_train", inputs, arms, 128, seed))
    rows.append(_row(_only(net, nn.BatchNorm1d), "batchnorm_in_train", inputs, arms, 128, seed))
    rows.append(_row(net.train(), "sorted_in_train", inputs[order], arms[order], 128, seed))
    rows.append(_after_pass(net, inputs, arms, order, seed))
    return net.eval(), inputs[:128], ForgottenEval(tuple(rows), len(arms), p)


def _row(
    net: nn.Module, kind: EvaluationKind, inputs: torch.Tensor, arms: torch.Tensor, batch: int, seed: int
) -> CostRow:
    """On a copy: evaluation in train mode moves the running statistics."""
    torch.manual_seed(seed)
    return CostRow(kind, SETTINGS[kind], batch, *evaluate(copy.deepcopy(net), inputs, arms, batch))


def _only(net: nn.Module, kind: type[nn.Module]) -> nn.Module:
    net.eval()
    for module in net.modules():
        if isinstance(module, kind):
            module.train()
    return net


def _after_pass(net: nn.Module, inputs: torch.Tensor, arms: torch.Tensor, order: torch.Tensor, seed: int) -> CostRow:
    """eval() after one evaluation in train mode had overwritten the statistics with those of sorted batches."""
    spoiled = copy.deepcopy(net).train()
    torch.manual_seed(seed)
    evaluate(spoiled, inputs[order], arms[order], 128)
    return _row(spoiled.eval(), "eval_after_sorted", inputs, arms, 128, seed)
