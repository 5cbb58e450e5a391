from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from components.autograd_graph.graph_view.boxes import Box, open_at_first, visible
from components.autograd_graph.graph_view.folding import fold
from components.autograd_graph.graph_view.notation import short_gradient
from components.autograd_graph.graph_view.scene import default_pass, folder, pass_graph, scene
from components.autograd_graph.graph_view.steps import STEPS_LIMIT, added, passage
from lab.records.graph import GraphResult, Step
from tests.components.autograd_graph.graph_results import a_pass, chain, measured


def drawn(whole: GraphResult, number: int | None = None, opened: set[str] | None = None) -> dict[str, Any]:
    number = default_pass(whole) if number is None else number
    return scene(whole, number, folder(whole)(number), opened)


def sum_faults(whole: GraphResult, number: int) -> list[str]:
    """Nodes whose gradient, added up from what their users handed over, is not what the engine then brought to them."""
    nodes, edges = pass_graph(whole, number)
    shown = visible(fold(nodes, edges), ())
    steps = whole.backward[number]
    ids = {(e.source, e.target, e.slot): k for k, e in enumerate(edges)}
    run = passage(steps, edges, shown.item_of, {n.id: n for n in nodes}, ids)
    forming, found = {}, []
    for raw, step in zip(steps, run.steps, strict=True):
        if step["item"] in forming and forming[step["item"]] != _incoming(raw):
            found.append(f"{step['item']}: {forming[step['item']]} became {_incoming(raw)}")
        forming |= {g["to"]: g["so_far"] for g in step["given"]}
    return found


def _incoming(step: Step) -> str:
    return short_gradient(step.incoming)


@pytest.mark.parametrize(
    ("name", "number"), [("used twice", 0), ("doubling", 0), ("two backwards", 1), ("double backward", 1)]
)
def test_the_parts_that_are_shown_add_up_to_what_arrives(name: str, number: int) -> None:
    assert sum_faults(measured(name), number) == []


def test_the_sum_check_sees_a_lost_part() -> None:
    whole = measured("used twice")
    planted = [replace(s, given=(s.given[0], [5.0, 5.0])) if len(s.given) == 2 else s for s in whole.backward[0]]
    assert planted != list(whole.backward[0])
    assert sum_faults(replace(whole, backward=(tuple(planted),)), 0)


def test_sums_form_in_the_order_of_the_engine() -> None:
    steps = drawn(measured("used twice"))["steps"]
    pills = [g["sum"] for s in steps for g in s["given"] if g["sum"]]
    assert pills == ["so far 1.0\u20021.0", "(1.0\u20021.0) + (0.118\u2002−0.105) = (1.12\u20020.895)"]


def test_each_gradient_is_written_on_the_edge_that_carries_it() -> None:
    picture = drawn(measured("used twice"))
    edges = {e["id"]: e for e in picture["edges"]}
    for step in picture["steps"]:
        for given in step["given"]:
            assert (edges[given["edge"]]["t"], edges[given["edge"]]["s"]) == (step["item"], given["to"])
    doubled = drawn(measured("doubling"))["steps"][3]["given"]
    assert len({g["edge"] for g in doubled}) == 2


def test_several_outputs_of_one_node_are_not_added_together() -> None:
    picture = drawn(measured("split"))
    split = next(c["id"] for c in picture["nodes"] if "split" in c["title"])
    sums = [g["sum"] for s in picture["steps"] for g in s["given"] if g["to"] == split]
    assert [s for s in sums if s.startswith("(3.0")] == []
    assert len(sums) == 4


def test_notes_say_what_happens() -> None:
    notes = [re.sub("\u2002", " ", s["note"]) for s in drawn(measured("used twice"))["steps"]]
    assert notes[0] == "sum (loss) receives 1.0, the start of the pass, and hands 1.0 1.0 to add."
    assert any(n.startswith("mul receives 0.235 0.105 and hands") and "0.235 0.21 to w" in n for n in notes)
    assert any(n.endswith("Here ∂x = w · ∂ and ∂w = x · ∂.") for n in notes), notes
    assert "w.grad was None and becomes 0.235 0.21." in notes
    again = [re.sub("\u2002", " ", s["note"]) for s in drawn(measured("two backwards"), 1)["steps"]]
    assert again[-1] == "x.grad goes from 2.0 4.0 to 4.0 8.0: the new 2.0 4.0 is added to what was there."


def test_saved_tensors_are_freed_when_their_node_runs_and_stay_with_retain_graph() -> None:
    whole = measured("two backwards")
    first, second = drawn(whole, 0), drawn(whole, 1)
    assert [t["freed_at"] for c in first["nodes"] for t in c["tags"]] == [None]
    (tag,) = [t for c in second["nodes"] for t in c["tags"]]
    power = next(c["id"] for c in second["nodes"] if c["tags"])
    assert second["steps"][tag["freed_at"]]["item"] == power


def test_nodes_inside_a_box_are_one_step() -> None:
    whole = measured("transformer")
    root = fold(whole.nodes, whole.edges)
    picture = drawn(whole)
    shown = visible(root, open_at_first(root))
    ran = [s["item"] for s in picture["steps"]]
    assert all(a != b for a, b in itertools.pairwise(ran))
    boxes = {item.id for item in shown.items if isinstance(item, Box)}
    assert boxes <= set(ran)
    spans = [s["at"] for s in picture["steps"]]
    assert [low for low, _ in spans] == [0, *(high + 1 for _, high in spans[:-1])]


def test_a_long_pass_is_cut_and_says_so() -> None:
    whole = chain(4000)
    ids = [n.id for n in whole.nodes[::-1]]
    steps = tuple(Step(i, 1.0, given=(1.0,) if i > 2 else (), parents=(i - 1,) if i > 2 else ()) for i in ids)
    whole = replace(whole, backward=(steps,), passes=(a_pass(steps_cut=7),))
    item_of: dict[int, int | Box] = {i: i for i in ids}
    run = passage(steps, whole.edges, item_of, {n.id: n for n in whole.nodes}, {})
    assert len(run.steps) == run.walked == STEPS_LIMIT
    assert any("of 4,010 backward steps" in c for c in drawn(whole)["caveats"])


def test_adding_wire_values() -> None:
    assert added([1.0, [2.0]], [0.5, [1.0]]) == [1.5, [3.0]]
    assert added("Infinity", "-Infinity") == "NaN"
    assert added("Infinity", 1.0) == "Infinity"
    assert added("(1+2j)", "(1-1j)") == "(2+1j)"
    assert added({"norm": 1.0}, {"norm": 2.0}) is None
    assert added([1.0], [1.0, 2.0]) is None
