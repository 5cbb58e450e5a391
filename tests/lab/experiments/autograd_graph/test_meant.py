"""What a program does on purpose draws no warning and no advice; the look-alike that is a mistake does."""

from __future__ import annotations

from lab.contract import Finding, silent
from lab.experiments.autograd_graph import Params, explain, run


def findings(code: str) -> tuple[Finding, ...]:
    return explain(run(Params(code="import torch\n" + code), silent))


AVERAGE = """model, ema = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
opt = torch.optim.SGD({held}, lr=0.1)
model(torch.ones(2, 3)).sum().backward()
opt.step()
with torch.no_grad():
    for a, b in zip(ema.parameters(), model.parameters()):
        a.mul_(0.9).add_(b, alpha=0.1)
"""


def test_a_moving_average_is_meant_to_get_no_gradient() -> None:
    assert not [f for f in findings(AVERAGE.format(held="model.parameters()")) if f.level == "warning"]
    held = AVERAGE.format(held="[*model.parameters(), *ema.parameters()]")
    assert any(".grad is None" in f.title for f in findings(held))


ADDED = """w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(2):
    (w**2).sum().backward()
    {inside}
{after}
"""


def test_gradients_that_one_step_uses_are_meant_to_add_up() -> None:
    meant = next(f for f in findings(ADDED.format(inside="pass", after="opt.step()")) if "is a sum over" in f.title)
    assert (meant.level, meant.repair) == ("fact", "")
    wrong = next(f for f in findings(ADDED.format(inside="opt.step()", after="")) if "is a sum over" in f.title)
    assert wrong.level == "surprise"
    assert "zero_grad" in wrong.repair


CUSTOM = """class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return {forward}
    @staticmethod
    def backward(ctx, g):
        return g
F.apply(torch.tensor([0.3, 1.7], requires_grad=True)).sum().backward()
"""


def test_a_slope_straight_through_round_is_meant() -> None:
    assert not [f for f in findings(CUSTOM.format(forward="x.round()")) if f.level == "warning"]
    assert any("derivative is wrong" in f.title for f in findings(CUSTOM.format(forward="3 * x")))


def test_a_view_of_a_leaf_written_under_no_grad_is_recorded() -> None:
    """torch raises where the graph of such a view is read; the program is legal and gets its gradient."""
    code = (
        "w = torch.zeros(3, 3, requires_grad=True)\nwith torch.no_grad():\n    w[0].fill_(1.0)\n    w.diagonal().add_(0.5)\n"
        "y = (w @ torch.ones(3)).sum()\ny.backward()\n"
    )
    result = run(Params(code=code), silent)
    assert result.fault is None
    assert [leaf.grad for leaf in result.leaves if leaf.name == "w"] == [[[1.0] * 3] * 3]
