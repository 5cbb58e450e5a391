"""What the scan says about programs as people write them, and about their healthy twins."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lab.contract import silent
from lab.experiments import train_eval
from lab.experiments.train_eval.schema import Params, Result
from lab.instruments.modes.state import ModelState
from lab.instruments.modes.traits import initial_shares

HEAD = "torch.manual_seed(0)\n"
TAIL = "\nbatch = (torch.randn(16, 6), torch.randint(0, 3, (16,)))\n"
NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
        {init}
    def forward(self, x):
        {forward}
        return self.fc(x)
model = Net()
"""


def scanned(code: str) -> Result:
    result = train_eval.run(Params(view="scan", model="own", code=HEAD + code + TAIL), silent)
    assert result.fault is None
    return result


def titles(code: str) -> list[str]:
    return [finding.title for finding in train_eval.explain(scanned(code))]


CASES = {
    "made anew in forward": (
        NET.format(init="pass", forward="x = nn.Dropout(0.5)(x)"),
        NET.format(init="self.drop = nn.Dropout(0.5)", forward="x = self.drop(x)"),
        "no submodule: eval() does not reach it",
    ),
    "in a plain list": (
        NET.format(init="self.drops = [nn.Dropout(0.4), nn.Dropout(0.4)]", forward="x = self.drops[1](x)"),
        NET.format(
            init="self.drops = nn.ModuleList([nn.Dropout(0.4), nn.Dropout(0.4)])", forward="x = self.drops[1](x)"
        ),
        "no submodule: eval() does not reach it",
    ),
    "dropout of one layer": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.rnn = nn.GRU(6, 8, dropout=0.5)\n"
        "        self.out = nn.Linear(8, 3)\n    def forward(self, x):\n        return self.out(self.rnn(x)[0])\nmodel = Net()",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.rnn = nn.GRU(6, 8, 2, dropout=0.5)\n"
        "        self.out = nn.Linear(8, 3)\n    def forward(self, x):\n        return self.out(self.rnn(x)[0])\nmodel = Net()",
        "drops nothing",
    ),
    "a buffer that moves in eval mode": (
        NET.format(init="self.register_buffer('count', torch.zeros(()))", forward="self.count += 1"),
        NET.format(init="self.register_buffer('count', torch.zeros(()))", forward="self.count += 1.0 * self.training"),
        "A forward in eval mode changes count",
    ),
    "an attribute that moves in eval mode": (
        NET.format(init="self.p = 0.2", forward="self.p = self.p if self.training else 0.0; x = F.dropout(x, self.p)"),
        NET.format(init="self.p = 0.2", forward="p = self.p if self.training else 0.0; x = F.dropout(x, p)"),
        "A forward in eval mode changes p",
    ),
    "initial statistics": (
        "model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=0.01), nn.Linear(8, 3))\n"
        "for i in range(20):\n    model(torch.randn(32, 6))\n    print('batch', i)",
        "model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))\n"
        "for i in range(20):\n    model(torch.randn(32, 6))\n    print('batch', i)",
        "still holds its initial statistics",
    ),
    "statistics that are not finite": (
        "model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))\nfor _ in range(30):\n    model(torch.full((4, 6), float('nan')))",
        "model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))\nmodel.register_buffer('mask', torch.full((6,), -float('inf')))\n"
        "for _ in range(30):\n    model(torch.randn(4, 6))",
        "is not finite",
    ),
    "kept in eval mode by its own train()": (
        NET.format(init="self.norm = nn.BatchNorm1d(6)", forward="x = self.norm(x)").replace(
            "    def forward",
            "    def train(self, mode=True):\n        super().train(mode)\n        self.norm.eval()\n        return self\n    def forward",
        ),
        NET.format(init="self.norm = nn.BatchNorm1d(6)", forward="x = self.norm(x)"),
        "train() leaves a part in eval mode",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_named_and_its_healthy_twin_is_not(name: str) -> None:
    faulty, healthy, said = CASES[name]
    assert any(said in title for title in titles(faulty)), titles(faulty)
    assert not any(said in title for title in titles(healthy)), titles(healthy)


def test_a_list_and_a_module_made_anew_get_their_own_repair() -> None:
    made, held = (
        train_eval.explain(scanned(CASES[name][0]))[0] for name in ("made anew in forward", "in a plain list")
    )
    assert (made.line, "__init__" in made.repair, "anew" in made.text) == (8, True, True)
    assert (held.line, "ModuleList" in held.repair, "drops" in held.text) == (8, True, True)


def test_a_module_that_cannot_be_in_train_mode_gets_no_gap() -> None:
    said = titles(CASES["kept in eval mode by its own train()"][0])
    assert "Nothing changes under eval()" in said
    assert not any("changes the output most" in title for title in said)


def test_the_gap_is_that_of_the_state_as_it_was_handed_over() -> None:
    """Reading order must not matter: an eval forward that sets p to 0 may not silence the measurement of train mode."""
    faulty, healthy, _ = CASES["an attribute that moves in eval mode"]
    gaps = [scanned(code).scan.modes.gap_together for code in (faulty, healthy)]  # type: ignore[union-attr]
    assert gaps[0] > 0.1
    assert gaps[0] == pytest.approx(gaps[1])


def test_the_share_of_initial_statistics_is_what_is_measured() -> None:
    """Batches of zeros leave the mean at its share of the initial value, here 1."""
    norm = nn.BatchNorm1d(2, momentum=0.03)
    norm.running_mean.fill_(1.0)  # type: ignore[union-attr]
    for _ in range(7):
        norm(torch.zeros(4, 2))
    (share,) = initial_shares(norm)
    assert norm.running_mean[0].item() == pytest.approx(share.share, rel=1e-5)  # type: ignore[index]


def test_a_state_that_was_put_back_differs_in_nothing() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5))
    state = ModelState(model)
    model(torch.randn(4, 2))
    setattr(model[1], "p", 0.9)  # noqa: B010 - a number of the module, as a program sets it
    assert {change.name for change in state.changes()} == {
        "0.running_mean",
        "0.running_var",
        "0.num_batches_tracked",
        "1.p",
    }
    state.restore()
    assert state.changes() == ()
    assert model[1].p == 0.5


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "model = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4))\nbatch = torch.randn(1, 6)",
            "It was raised in 2 (BatchNorm1d), which got [1, 4].",
        ),
        (
            "model = nn.Sequential(nn.Linear(6, 4), nn.Linear(5, 2))\nbatch = torch.randn(3, 6)",
            "It was raised in 1 (Linear), which got [3, 4].",
        ),
    ],
)
def test_a_module_that_refuses_its_input_is_named(code: str, said: str) -> None:
    result = train_eval.run(Params(view="scan", model="own", code=code), silent)
    assert result.fault
    assert result.fault.explanation.startswith(said)
