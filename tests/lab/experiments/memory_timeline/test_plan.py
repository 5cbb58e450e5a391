"""The checkpoint plan: exact among all choices, and its modelled bytes are those of the run."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from lab.contract import ParamsError, silent
from lab.experiments import memory_timeline
from lab.experiments.memory_timeline import plan as search
from lab.experiments.memory_timeline.blocks import chain_of, flops_of_blocks
from lab.experiments.memory_timeline.plan import Block, Chain, Side, cheapest, tightest
from lab.experiments.memory_timeline.schema import Params, block_numbers, numbers_text
from lab.experiments.memory_timeline.tracking import track


def random_chain(seed: int, count: int) -> Chain:
    draw = random.Random(seed)

    def side() -> Side:
        return Side(*(draw.randint(0, 40) for _ in range(2)), *(draw.randint(10, 90) for _ in range(2)))

    blocks = tuple(Block(str(i), draw.randint(1, 9), side(), side()) for i in range(count))
    return Chain(blocks, draw.randint(0, 120))


def every_choice(count: int):
    return (frozenset(c) for size in range(count + 1) for c in itertools.combinations(range(count), size))


def check(chain: Chain, budget: int) -> None:
    """The search against all choices."""
    count = len(chain.blocks)
    within = [c for c in every_choice(count) if chain.peak_bytes(c) <= budget]
    found = cheapest(chain, budget)
    assert (found is None) == (not within)
    if found is None:
        return
    least = min(chain.cost(c) for c in within)
    assert chain.peak_bytes(found) <= budget
    assert chain.cost(found) == least
    tight = tightest(chain, budget)
    assert tight is not None
    assert chain.peak_bytes(tight) == min(chain.peak_bytes(c) for c in within if chain.cost(c) == least)


def check_many(seeds: range) -> None:
    for seed in seeds:
        chain = random_chain(seed, 6)
        check(chain, (chain.least_bytes() + chain.peak_bytes(())) // 2)


@pytest.mark.parametrize("seed", range(12))
def test_the_search_is_exact(seed):
    chain = random_chain(seed, 3 + seed % 6)
    peaks = sorted({chain.peak_bytes(c) for c in every_choice(len(chain.blocks))})
    assert chain.least_bytes() == peaks[0]
    for budget in (peaks[0] - 1, peaks[0], peaks[len(peaks) // 3], peaks[-1]):
        check(chain, budget)


def test_twelve_blocks():
    chain = random_chain(99, 12)
    check(chain, (chain.least_bytes() + chain.peak_bytes(())) // 2)


def test_a_planted_greedy_choice_is_caught(monkeypatch):
    """Keeping only the cheapest state of each step is no exact search."""
    monkeypatch.setattr(search, "_undominated", lambda states: sorted(states, key=lambda s: s.cost)[:1])
    with pytest.raises(AssertionError):
        check_many(range(12))


def test_blocks_of_too_many_sizes_are_given_up(monkeypatch):
    monkeypatch.setattr(search, "MOST_STATES", 3)
    chain = random_chain(1, 10)
    with pytest.raises(OverflowError):
        cheapest(chain, 10_000)


ODD = """
class Wide(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.up, self.down = nn.Linear(w, 4 * w), nn.Linear(4 * w, w)

    def forward(self, x, *, scale=1.0):
        return x + scale * self.down(torch.tanh(self.up(x))), x.mean()


class Thin(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.line = nn.Linear(w, w)

    def forward(self, x, *, scale=1.0):
        return torch.relu(self.line(x)) * scale, x.sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Wide(32), Thin(32), Wide(32), Wide(32), Thin(32)])
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        for part in self.parts:
            x, _ = part(x, scale=0.5)
        return self.head(x)


model = Net()
batch = (torch.randn(256, 32), torch.randint(0, 10, (256,)))
"""
CURVES = """
class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return self.second(self.first(x))


class Curves(nn.Module):
    def forward(self, x):
        for _ in range(3):
            x = torch.relu(x + 0.1)
        return x + 1


model = nn.Sequential(Products(), Curves(), Products(), Curves(), Curves(), Products())
batch = (torch.randn(512, 64), torch.randn(512, 64))
"""
RANDOM_STATE = 5056
MODELS = {
    "gpt": Params(layers=4, width=64, batch=8, seq=32, vocabulary=100, optimizer="sgd"),
    "gpt under autocast": Params(layers=3, width=64, batch=8, seq=32, vocabulary=100, precision="bf16_autocast"),
    "cnn": Params(model="cnn", layers=3, width=8, batch=4),
    "odd blocks": Params(model="own", code=ODD, optimizer="sgd"),
    "blocks that save no input": Params(model="own", code=CURVES, optimizer="sgd", steps=1),
    "blocks that save their output": Params(model="own", code=CURVES.replace("x + 0.1", "0.1 * x"), optimizer="sgd"),
}


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_modelled_peak_of_every_choice_is_that_of_the_run(name, fake):
    params = MODELS[name]
    plain, every = (track(replace(params, checkpoint=how), fake=fake) for how in ("none", "every"))
    priced = flops_of_blocks(params)
    chain, count = chain_of(priced, plain, every), len(priced)
    assert chain.peak_bytes(()) == plain.peak_bytes
    assert abs(chain.peak_bytes(range(count)) - every.peak_bytes) <= (0 if fake else RANDOM_STATE)
    for chosen in ({0}, {count - 1}, {0, count - 1}, {1}, set(range(1, count))):
        text = numbers_text(priced[i].number for i in chosen)
        ran = track(replace(params, checkpoint="chosen", blocks=text), fake=fake)
        assert ran.segments == len(chosen)
        over = chain.peak_bytes(chosen) - ran.peak_bytes
        assert over == 0 if fake else abs(over) <= RANDOM_STATE  # a real segment keeps a state of the generator


def test_a_planted_block_that_keeps_less_is_caught():
    params = MODELS["gpt"]
    plain, every = (track(replace(params, checkpoint=how), fake=True) for how in ("none", "every"))
    chain = chain_of(flops_of_blocks(params), plain, every)
    first = chain.blocks[0]
    less = replace(first, plain=replace(first.plain, kept_backward=0))
    planted = replace(chain, blocks=(less, *chain.blocks[1:]))
    assert planted.peak_bytes(()) != plain.peak_bytes


def test_flops_of_a_block_are_those_of_its_products():
    """qkv, out, two of the MLP, and attention, each 2·m·n·k."""
    params = MODELS["gpt"]
    tokens, width = params.batch * params.seq, params.width
    products = 2 * tokens * width * width * (3 + 1 + 4 + 4)
    attention = 2 * 2 * params.batch * params.seq**2 * width
    assert {block.cost for block in flops_of_blocks(params)} == {products + attention + 1}


def test_the_plan_is_run_and_set_beside_the_usual_choices():
    params = replace(MODELS["gpt"], optimizer="sgd", batch=32)
    result = memory_timeline.run(params, silent)
    plan = result.plan
    assert plan is not None
    names = [run.name for run in plan.runs]
    assert names[:3] == ["the plan", "none", "every block"]
    assert "√n" in names[3]
    chosen, none, every = plan.runs[:3]
    assert every.peak_bytes <= chosen.peak_bytes <= plan.budget_bytes < none.peak_bytes
    assert abs((chosen.modelled_peak_bytes or 0) - chosen.peak_bytes) <= RANDOM_STATE
    assert chosen.step_s
    assert 0 < (chosen.recomputed_cost or 0) < (every.recomputed_cost or 0)
    assert list(plan.frontier_bytes) == sorted(plan.frontier_bytes)
    assert list(plan.frontier_cost) == sorted(plan.frontier_cost, reverse=True)
    again = memory_timeline.run(replace(params, **chosen.knobs, peak_only=True), silent)
    assert again.peak.bytes == chosen.peak_bytes
    assert any("blocks are enough" in f.title for f in memory_timeline.explain(result))


def test_a_budget_below_the_least_is_said():
    result = memory_timeline.run(replace(MODELS["gpt"], budget_bytes=1 << 20), silent)
    assert result.plan is not None
    assert not result.plan.within
    assert any("No choice of blocks" in f.title for f in memory_timeline.explain(result))


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"accumulate": 2}, "one forward and one backward"),
        ({"retain_graph": True}, "retained graph"),
        ({"mode": "no_grad"}, "Nothing runs backward"),
        ({"model": "lstm"}, "no list of two or more"),
        ({"model": "own", "code": "cell = nn.Sequential(nn.Linear(8, 8), nn.Tanh())\nclass M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.cells = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])\n    def forward(self, x):\n        for i in range(4):\n            x = self.cells[i % 2](x)\n        return x\nmodel, batch = M(), torch.randn(4, 8)"}, "more than once"),
    ],
)  # fmt: skip
def test_where_there_is_no_plan_the_reason_is_said(knobs, why):
    result = memory_timeline.run(replace(MODELS["gpt"], **knobs), silent)
    assert result.plan is None
    assert why in result.plan_reason


def test_numbers_of_blocks():
    assert block_numbers("0-3 6, 8") == {0, 1, 2, 3, 6, 8}
    assert numbers_text({6, 0, 1, 2}) == "0-2 6"
    with pytest.raises(ParamsError, match="no number and no range"):
        Params(blocks="first")
