"""What is said about models as people write them, and about their healthy twins."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from components.gradient_flow.charts.over_time import over_time_chart
from lab.contract import Finding, silent
from lab.experiments import gradient_flow
from lab.experiments.gradient_flow.schema import Params, Result
from lab.instruments.gradients.over_time import over_time
from lab.records.gradients import OverTime

MLP = "torch.manual_seed(0)\nmodel = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))\n"
BATCH = "batch = (torch.randn(16, 4), torch.randint(0, 3, (16,)))\n"
LOSS = "def loss(model, batch):\n    p = model(batch[0])\n    print('loss')\n    return {}\n"
READER = (
    "torch.manual_seed(0)\nclass Reader(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.emb = nn.Embedding(30, 8)\n"
    "        self.gru = nn.GRU(8, 16, batch_first=True)\n        self.out = nn.Linear(16, 2)\n    def forward(self, ids):\n"
    "        y, h = self.gru(self.emb(ids))\n        return self.out(y{})\nmodel = Reader()\n"
    "batch = (torch.randint(0, 30, (8, 60)), torch.randint(0, 2, (8,)))\n"
)
UNUSED = (
    "torch.manual_seed(0)\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(4, 3)\n"
    "        self.scale, self.spare = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))\n    def forward(self, x):\n"
    "        return self.fc(x) * self.scale{}\nmodel = Net()\n"
)
NO_GRAD = (
    "torch.manual_seed(0)\nclass Probe(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)\n"
    "    def forward(self, x):\n        with {}:\n            x = self.body(x)\n        return self.head(x)\nmodel = Probe()\n"
)


def measured(code: str, **knobs: object) -> tuple[Result, tuple[Finding, ...]]:
    result = gradient_flow.run(Params(family="own", code=code, **{"steps": 2, **knobs}), silent)  # type: ignore[arg-type]
    assert result.fault is None, result.fault
    return result, gradient_flow.explain(result)


def said(code: str, **knobs: object) -> str:
    return "\n".join(f"{f.title}: {f.text}" for f in measured(code, **knobs)[1])


BFLOAT = "model = model.to(torch.bfloat16)\nwith torch.no_grad():\n    for p in model.parameters():\n        p.fill_(1.0)\nbatch = (torch.randn(16, 4, dtype=torch.bfloat16), torch.randn(16, 3, dtype=torch.bfloat16))\n"
CASES = {
    "an attribute that freezes nothing": (
        MLP + "model[0].requires_grad = False\n" + BATCH,
        MLP + "model[0].requires_grad_(False)\n" + BATCH,
        "0.requires_grad = False freezes nothing",
    ),
    "a parameter beside used ones": (
        UNUSED.format("") + BATCH,
        UNUSED.format(" + self.spare") + BATCH,
        "No gradient: spare",
    ),
    "a part under no_grad": (
        NO_GRAD.format("torch.no_grad()") + BATCH,
        NO_GRAD.format("torch.enable_grad()") + BATCH,
        "gradients switched off (no_grad or inference mode), called on line 8",
    ),
    "the first step of a long sequence": (
        READER.format("[:, -1]"),
        READER.format(".mean(1)"),
        "what reaches the first time step: Over 60 time steps",
    ),
}


@pytest.mark.parametrize("name", [name for name in CASES if name != "the first step of a long sequence"])
def test_the_cause_is_named_and_a_healthy_twin_is_not(name: str) -> None:
    faulty, healthy, words = CASES[name]
    assert words in said(faulty)
    assert words not in said(healthy)


def test_updates_that_bfloat16_rounds_away_are_told_and_larger_ones_are_not() -> None:
    assert "Updates are lost in rounding: 0" in said(MLP + BFLOAT, optimizer="adam", lr=6e-4)
    assert "lost in rounding" not in said(MLP + BFLOAT, optimizer="adam", lr=6e-2)
    assert "lost in rounding" not in said(MLP + BATCH, optimizer="adam", lr=6e-4)


def test_a_log_in_the_loss_is_named_with_its_line_and_what_it_got() -> None:
    peaked = MLP + "model.append(nn.Softmax(1))\nwith torch.no_grad():\n    model[2].weight.mul_(3000)\n" + BATCH
    result, found = measured(peaked + LOSS.format("-torch.log(p[torch.arange(16), batch[1]]).mean()"))
    first = result.first_nonfinite
    assert first
    line = peaked.count("\n") + 4
    assert (first.layer, first.operation, first.line, first.got) == ("", "log", line, 0.0)
    assert (found[0].line, "log_softmax" in found[0].repair) == (line, True)


def test_a_root_at_zero_in_the_loss_is_named_with_its_line() -> None:
    same = (
        MLP
        + "batch = torch.randn(4, 4)\n"
        + LOSS.replace("batch[0]", "batch").format("(p - p.detach()).pow(2).sum(1).sqrt().mean()")
    )
    result, found = measured(same)
    first = result.first_nonfinite
    assert first
    assert (first.operation, first.layer, first.line) == ("backward of sqrt", "", 7)
    assert "root" in found[0].repair
    healthy = same.replace(".sqrt()", ".add(1e-6).sqrt()")
    assert measured(healthy)[0].first_nonfinite is None


def test_the_gradient_over_time_is_that_of_the_input_sequence() -> None:
    """Against autograd by hand: an input that takes gradients itself."""
    torch.manual_seed(0)
    rnn, x = nn.RNN(3, 5), torch.randn(7, 2, 3, requires_grad=True)  # (T, B, C)
    (row,) = over_time(rnn, lambda: rnn(x.detach())[0][-1].square().sum())
    rnn(x)[0][-1].square().sum().backward()
    assert x.grad is not None
    by_hand = [float(step.double().norm()) for step in x.grad]
    assert row.norms == pytest.approx(by_hand, rel=1e-5)
    assert row.norms != pytest.approx(by_hand[::-1], rel=1e-2)  # steps in the wrong order are caught


def test_a_fading_gradient_is_a_warning_and_a_level_one_is_not() -> None:
    fading, level = (measured(READER.format(end)) for end in ("[:, -1]", ".mean(1)"))
    assert fading[0].over_time[0].norms[0] < 1e-10 < fading[0].over_time[0].norms[-1]
    warned = [f.level for f in fading[1] if "first time step" in f.title]
    calm = [f.level for f in level[1] if "first time step" in f.title]
    assert (warned, calm) == (["warning"], ["fact"])


def test_looking_over_time_changes_no_training() -> None:
    dropping = READER.format("[:, -1]").replace(
        "nn.GRU(8, 16, batch_first=True)", "nn.GRU(8, 16, 2, dropout=0.5, batch_first=True)"
    )
    watched = measured(dropping, steps=3)[0].loss
    bare = measured(
        dropping.replace("nn.GRU(", "Hidden(")
        .replace("model = Reader()", "model = Reader()")
        .replace(
            "class Reader",
            "class Hidden(nn.Module):\n    def __init__(self, *a, **k):\n        super().__init__()\n        self.inner = [nn.GRU(*a, **k)]\n"
            "        self.kept = nn.ParameterList(self.inner[0].parameters())\n    def forward(self, x):\n        return self.inner[0](x)\nclass Reader",
        ),
        steps=3,
    )[0].loss
    assert watched == bare


def test_the_chart_shows_every_step_and_keeps_zeros() -> None:
    chart = over_time_chart([OverTime("gru", "GRU", (0.0, 1e-8, 0.5))], "light").to_dict()
    (rows,) = {len(rows) for name, rows in chart["datasets"].items()} - {1}
    shown = [row["shown"] for rows in chart["datasets"].values() for row in rows]
    assert rows == 2
    assert set(shown) == {"0", "1e−08", "0.5"}
