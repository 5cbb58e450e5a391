from __future__ import annotations

import itertools
import random
import re
import time

import pytest

from components.autograd_graph.graph_view import layout
from components.autograd_graph.graph_view.layout import Frame, Layout, layers, place

SIZES = ((120, 60), (90, 40), (140, 80), (100, 50))
EDGES = ((3, 1), (0, 1), (0, 2), (1, 2), (1, 2))


def faults(placed: Layout, sizes: tuple[tuple[int, int], ...], edges: tuple[tuple[int, int], ...]) -> list[str]:
    """Overlapping boxes, edges that do not run from the foot of their source down to the head of their target."""
    found = []
    for i, j in itertools.combinations(range(len(sizes)), 2):
        apart = [abs(placed.centres[i][k] - placed.centres[j][k]) - (sizes[i][k] + sizes[j][k]) / 2 for k in (0, 1)]
        if max(apart) < -0.5:
            found.append(f"boxes {i} and {j} overlap")
    for number, (a, b) in enumerate(edges):
        for box, (x, y) in ((a, placed.curves[number][0]), (b, placed.curves[number][-1])):
            (cx, cy), (w, h) = placed.centres[box], sizes[box]
            if abs(x - cx) > w / 2 + 2 or abs(y - cy) > h / 2 + 2:
                found.append(f"edge {number} does not touch box {box}")
        if placed.centres[a][1] >= placed.centres[b][1]:
            found.append(f"edge {number} does not go down")
    return found


@pytest.mark.parametrize("method", [place, layers])
def test_boxes_are_apart_and_edges_join_the_right_ones(method) -> None:
    assert faults(method(SIZES, EDGES), SIZES, EDGES) == []


def test_the_check_sees_swapped_curves_and_overlap() -> None:
    good = place(SIZES, EDGES)
    swapped = Layout(good.width, good.height, good.centres, good.curves[::-1], good.frames, True)
    assert any("does not touch" in f for f in faults(swapped, SIZES, EDGES))
    heaped = Layout(good.width, good.height, ((0.0, 0.0),) * 4, good.curves, good.frames, True)
    assert any("overlap" in f for f in faults(heaped, SIZES, EDGES))


def test_a_random_graph_of_150_boxes_is_placed_within_the_limit() -> None:
    draw = random.Random(1)
    sizes = tuple((draw.randrange(90, 300), draw.randrange(40, 130)) for _ in range(150))
    edges = tuple((draw.randrange(max(0, i - 9), i), i) for i in range(1, 150) for _ in range(2))
    began = time.perf_counter()
    placed = place(sizes, edges)
    assert time.perf_counter() - began < layout.TIME_LIMIT_S
    assert placed.exact
    assert faults(placed, sizes, edges) == []


def test_frames_hold_their_boxes() -> None:
    frames = (Frame((1,), (Frame((2,)),)),)
    placed = place(SIZES, EDGES, frames)
    outer, inner = placed.frames
    for (x, y, w, h), boxes in ((outer, (1, 2)), (inner, (2,))):
        for i in boxes:
            (cx, cy), (bw, bh) = placed.centres[i], SIZES[i]
            assert x < cx - bw / 2
            assert cx + bw / 2 < x + w
            assert y < cy - bh / 2
            assert cy + bh / 2 < y + h
    assert outer[0] < inner[0]
    assert outer[1] < inner[1]


def test_when_time_is_up_boxes_stand_in_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "TIME_LIMIT_S", 1e-6)
    sizes = tuple((100 + i, 50) for i in range(60))
    edges = tuple((i, j) for i in range(60) for j in range(i + 1, 60))
    placed = place(sizes, edges)
    assert not placed.exact
    assert faults(placed, sizes, edges) == []


def test_graphviz_gets_numbers_only() -> None:
    text = layout._dot(SIZES, EDGES, (Frame((1,)),), "TB")
    words = set(re.findall(r"[A-Za-z_]+", text))
    known = {"digraph", "rankdir", "TB", "nodesep", "ranksep", "node", "shape", "box", "fixedsize", "true", "label"}
    assert words <= known | {"edge", "arrowhead", "none", "width", "height", "id", "subgraph", "cluster_", "margin"}


def test_across_data_flows_to_the_right() -> None:
    placed = place(SIZES, EDGES, (), across=True)
    for source, target in EDGES:
        assert placed.centres[source][0] < placed.centres[target][0]
    down = place(SIZES, EDGES)
    assert all(down.centres[source][1] < down.centres[target][1] for source, target in EDGES)


def test_a_missing_executable_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    layout.graphviz.cache_clear()
    monkeypatch.setattr(layout.shutil, "which", lambda name, path=None: None)
    with pytest.raises(RuntimeError, match="pip install graphviz-pure"):
        layout.graphviz()
    layout.graphviz.cache_clear()


def test_nothing_to_place() -> None:
    assert place((), ()).centres == ()
