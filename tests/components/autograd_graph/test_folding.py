from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from components.autograd_graph.graph_view.boxes import VISIBLE_LIMIT, Box, Visible, open_at_first, visible
from components.autograd_graph.graph_view.folding import CHILDREN_LIMIT, fold
from lab.records.graph import Edge
from tests.components.autograd_graph.graph_results import chain, edge, measured, node


def has_cycle(shown: Visible, edges: Sequence[Edge]) -> bool:
    """Whether the drawn graph, boxes taken as one, has a cycle: Kahn's algorithm on the items."""
    below: dict[Any, set[Any]] = {item: set() for item in shown.items}
    for e in edges:
        source, target = shown.item_of[e.source], shown.item_of[e.target]
        if source is not target:
            below[source].add(target)
    waiting = dict.fromkeys(below, 0)
    for target in itertools.chain.from_iterable(below.values()):
        waiting[target] += 1
    ready = [item for item, n in waiting.items() if not n]
    for item in ready:
        for target in below[item]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return len(ready) < len(below)


def random_openings(root: Box) -> Iterable[set[str]]:
    draw, ids = random.Random(0), [box.id for box in root.boxes()]
    yield set()
    yield open_at_first(root)
    yield set(ids)
    for share in (0.1, 0.5, 0.9):
        yield {i for i in ids if draw.random() < share}


@pytest.mark.parametrize("name", ["transformer", "recurrent", "chain"])
def test_whatever_is_open_every_node_is_drawn_once_and_data_flows_one_way(name: str) -> None:
    whole = chain(3000) if name == "chain" else measured(name)
    root = fold(whole.nodes, whole.edges)
    assert all(len(b.children) <= CHILDREN_LIMIT for b in root.boxes())
    for opened in random_openings(root):
        shown = visible(root, opened)
        drawn = [n for item in shown.items for n in (item.members() if isinstance(item, Box) else [item])]
        assert sorted(drawn) == sorted(n.id for n in whole.nodes)
        assert set(shown.item_of) == set(drawn)
        assert len(shown.items) <= VISIBLE_LIMIT
        assert not has_cycle(shown, whole.edges)


def test_the_cycle_check_sees_a_box_with_a_hole() -> None:
    edges = [edge(0, 1), edge(1, 2)]
    box = Box("part", "", [0, 2])
    assert has_cycle(Visible([box, 1], {0: box, 1: 1, 2: box}, []), edges)


def test_small_graphs_are_not_folded() -> None:
    whole = measured("used twice")
    root = fold(whole.nodes, whole.edges)
    assert [*root.boxes()] == [root]
    assert set(visible(root, ()).items) == {n.id for n in whole.nodes}


def test_twelve_blocks_are_one_box_that_opens_to_twelve() -> None:
    whole = measured("transformer")
    root = fold(whole.nodes, whole.edges)
    shown = visible(root, open_at_first(root))
    (repeat,) = [item for item in shown.items if isinstance(item, Box) and item.kind == "repeat"]
    assert repeat.title == "12 × TransformerEncoderLayer"
    shown = visible(root, open_at_first(root) | {repeat.id})
    blocks = [item for item in shown.items if isinstance(item, Box) and item.label == "TransformerEncoderLayer"]
    assert blocks == repeat.rounds
    assert [box.title for box in blocks] == [f"1.layers.{i}" for i in range(12)]
    assert len({sum(1 for _ in box.members()) for box in blocks}) == 1
    assert len(shown.items) <= 60
    inside = {n for box in blocks for n in box.members()}
    weights = {n.id for n in whole.nodes if n.kind == "leaf" and ".layers." in n.label}
    assert weights <= inside


def test_a_loop_is_one_box_with_its_rounds_inside() -> None:
    whole = chain(20_000)
    began = time.process_time()
    root = fold(whole.nodes, whole.edges)
    shown = visible(root, open_at_first(root))
    assert time.process_time() - began < 1.0
    titles = [item.title if isinstance(item, Box) else item for item in shown.items]
    assert titles == [0, 1, "10,000 × (mul, add)", 20_002]
    box = next(item for item in shown.items if isinstance(item, Box))
    assert box.label == "lines 4–5"
    rounds = [b for b in root.boxes() if b.title.startswith("round ")]
    assert len(rounds) == 10_000
    assert all(len(b.children) == 2 for b in rounds)
    assert rounds[0].title != rounds[1].title


def test_a_module_that_is_called_twice_is_two_boxes() -> None:
    nodes, edges = [node(0, "x", kind="leaf")], []
    for i in range(1, 201):
        path = "net (Net)" if (i - 1) % 100 < 50 else None
        nodes.append(node(i, f"op{i % 7}", module=path, line=i))
        edges.append(edge(i - 1, i))
    root = fold(nodes, edges)
    modules = [box for box in root.boxes() if box.kind == "module"]
    assert [box.label for box in modules] == ["Net", "Net"]
    assert sorted(sum(1 for _ in box.members()) for box in modules) in ([50, 50], [50, 51])


def test_many_leaves_of_one_node_share_a_box() -> None:
    nodes = [node(i, f"x{i}", kind="leaf") for i in range(300)]
    nodes.append(node(300, "stack", kind="output"))
    root = fold(nodes, [edge(i, 300, slot=i) for i in range(300)])
    shown = visible(root, ())
    assert [i.title if isinstance(i, Box) else i for i in shown.items] == ["300 leaves", 300]
    assert visible(root, {b.id for b in root.boxes()}).item_of[7] == 7


def test_a_cycle_is_refused() -> None:
    nodes = [node(i, "op") for i in range(200)]
    with pytest.raises(ValueError, match="cycle"):
        fold(nodes, [edge(i, (i + 1) % 200) for i in range(200)])


def test_adversarial_repetition_is_quick() -> None:
    draw = random.Random(3)
    half = [draw.randrange(3) for _ in range(5000)]
    nodes = [node(0, "x", kind="leaf")] + [node(i + 1, f"op{s}", line=s) for i, s in enumerate(half * 2)]
    began = time.process_time()
    fold(nodes, [edge(i, i + 1) for i in range(len(nodes) - 1)])
    assert time.process_time() - began < 3.0


def test_modules_nested_without_end_are_folded_all_the_same() -> None:
    path = ".".join(["inner"] * 3000)
    nodes = [node(0, "x", kind="leaf")] + [node(i, f"op{i}", module=f"{path} (Inner)", line=i) for i in range(1, 200)]
    root = fold(nodes, [edge(i, i + 1) for i in range(199)])
    assert visible(root, {b.id for b in root.boxes()}).item_of[150] == 150
