"""A lesson on what is cheap to run twice."""

from __future__ import annotations

from lab.contract import Lesson
from lab.experiments.memory_timeline.answers import C3
from lab.experiments.memory_timeline.readings import peak_bytes
from lab.experiments.memory_timeline.schema import Params, Result

_PROGRAM = """class Products(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return self.second(self.first(x))


class Curves(nn.Module):
    def forward(self, x):
        for _ in range(6):
            x = torch.relu(x + 0.1)
        return x


model = nn.Sequential(Products(512), Curves(), Products(512), Curves(), Products(512), Curves())
batch = (torch.randn(512, 512), torch.randn(512, 512))
"""
_NO, _CHEAP, _DEAR, _BOTH = "none of them", "only those without products", "only those with products", "some of both"


def _chosen(result: Result) -> str:
    assert result.plan is not None
    curves = {block.path in ("1", "3", "5") for block in result.plan.blocks if block.checkpointed}
    return {frozenset(): _NO, frozenset((True,)): _CHEAP, frozenset((False,)): _DEAR}.get(frozenset(curves), _BOTH)


LESSON = Lesson(
    row="C3", title="a checkpoint plan under a budget", view="plan",
    params=Params(model="own", code=_PROGRAM, optimizer="sgd", steps=1),
    question="Six blocks by turns: two matrix products, or six times relu. Half of what checkpointing can save is needed. "
    "Which blocks does the cheapest plan run twice?",
    choices={
        _CHEAP: "They keep six results each and cost little to run again.",
        _DEAR: "They keep two results each, and their products are nearly all of the time.",
        _BOTH: "That would be so if the blocks without products were not enough.",
        _NO: "Without any the peak is the highest, and the budget is below it.",
    },
    answer=_chosen, evidence=peak_bytes, evidence_name="peak in bytes", **C3,
)  # fmt: skip
