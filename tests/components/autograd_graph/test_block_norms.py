from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from components.autograd_graph.graph_view.block_norms import BARS_LIMIT, Arriving, heights, norm_of
from components.autograd_graph.graph_view.boxes import Box, open_at_first
from components.autograd_graph.graph_view.folding import fold
from components.autograd_graph.graph_view.scene import scene
from tests.components.autograd_graph.graph_results import PROGRAMS, chain, measured


def seen_by_hooks(program: str) -> list[float]:
    """Norms of the gradients that torch hands to the hooks of the twelve layers, the first layer first."""
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    before, after = program.split("tokens =", 1)
    norms: dict[int, float] = {}
    with torch.random.fork_rng():
        exec(before, names)
        for at, layer in enumerate(names["net"][1].layers):
            layer.register_full_backward_hook(lambda _, __, out, at=at: norms.update({at: float(out[0].norm())}))
        exec(f"tokens ={after}", names)
    return [norms[at] for at in range(12)]


def test_the_bars_are_the_gradients_that_hooks_see() -> None:
    whole = measured("transformer")
    root = fold(whole.nodes, whole.edges)
    repeat = next(box for box in root.boxes() if box.title.startswith("12 ×"))
    gradients = {step.node: step.incoming if step.after is None else step.after for step in whole.backward[0]}
    arriving = Arriving(gradients, {n.id: n for n in whole.nodes})
    shown = [arriving.at(one) for one in repeat.rounds]
    seen = seen_by_hooks(PROGRAMS["transformer"])
    assert shown == pytest.approx(seen, rel=1e-4)
    assert shown[::-1] != pytest.approx(seen, rel=1e-4)  # another order would be noticed


def test_a_card_tells_the_range_and_draws_a_bar_for_each_round() -> None:
    whole = measured("transformer")
    tree = fold(whole.nodes, whole.edges)
    drawn = scene(whole, 0, tree, open_at_first(tree))
    (card,) = [card for card in drawn["nodes"] if card["title"].startswith("12 ×")]
    assert len(card["bars"]) == 12
    assert card["bars"][3]["text"].startswith("1.layers.3: the gradient that arrives has norm ")
    assert card["grad"].startswith("norm ")
    assert " … " in card["grad"]
    (note,) = [step["note"] for step in drawn["steps"] if step["item"] == card["id"]]
    assert note.startswith("12 × TransformerEncoderLayer receives norm ")


def test_without_a_pass_there_is_nothing_to_tell() -> None:
    whole = chain(400)
    root = fold(whole.nodes, whole.edges)
    (box,) = [box for box in root.boxes() if box.kind == "repeat"]
    assert Arriving({}, {n.id: n for n in whole.nodes}).card(box) == {}


def test_too_many_rounds_are_a_range_only() -> None:
    whole = chain(2 * (BARS_LIMIT + 1))
    root = fold(whole.nodes, whole.edges)
    (box,) = [box for box in root.boxes() if box.kind == "repeat"]
    gradients = {n.id: float(n.id) for n in reversed(whole.nodes)}
    card = Arriving(gradients, {n.id: n for n in whole.nodes}).card(box)
    assert card["grad"] == "norm 3.0 … 283.0"  # of each round the node that runs first
    assert "bars" not in card


def test_heights_are_logarithms() -> None:
    low, middle, high = heights([1e-4, 1e-2, 1.0])
    assert high == 1.0
    assert middle - low == pytest.approx(high - middle, abs=2e-3)
    assert heights([2.0, 2.0]) == [1.0, 1.0]
    assert heights([0.0, math.inf, math.nan, 1.0]) == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("gradient", "norm"),
    [
        (None, None),
        (-3.0, 3.0),
        ([3.0, [0.0, 4.0]], 5.0),
        ({"norm": 2.5}, 2.5),
        ("Infinity", math.inf),
        ("(3+4j)", 5.0),
    ],
)
def test_norms(gradient: object, norm: float | None) -> None:
    assert norm_of(gradient) == norm


def test_a_box_without_functions_that_ran_says_nothing() -> None:
    assert Arriving({}, {}).at(Box("part", "", [])) is None
