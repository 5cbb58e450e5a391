from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from components.autograd_graph.graph_view.cards import TITLE_PX, WIDEST, node_card, storage_bytes
from components.autograd_graph.graph_view.notation import text_width
from components.autograd_graph.graph_view.scene import default_pass, description, figure_id, folder, scene
from lab.records.graph import GraphResult
from tests.components.autograd_graph.graph_results import PROGRAMS, chain, edge, measured, node, result, saved


def drawn(whole: GraphResult, number: int | None = None, opened: set[str] | None = None) -> dict[str, Any]:
    number = default_pass(whole) if number is None else number
    return scene(whole, number, folder(whole)(number), opened)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_makes_a_scene_of_strict_json(name: str) -> None:
    whole = measured(name)
    picture = drawn(whole)
    json.dumps(picture, allow_nan=False)
    ids = [c["id"] for c in picture["nodes"]]
    assert len(ids) == len(set(ids))
    assert all(e["s"] in ids and e["t"] in ids for e in picture["edges"])
    assert description(whole, picture).startswith("Autograd graph")


def test_a_large_graph_sends_little() -> None:
    assert len(json.dumps(drawn(chain(20_000)))) < 20_000
    assert len(json.dumps(drawn(measured("transformer")))) < 100_000


def test_a_card_names_the_result_shape_line_value_and_gradient() -> None:
    cards = {c["title"]: c for c in drawn(measured("used twice"))["nodes"]}
    assert set(cards) == {"x", "w", "mul", "h = sigmoid", "add", "loss = sum"}
    card = cards["h = sigmoid"]
    assert (card["meta"], card["value"], card["grad"]) == ("[2] · line 3", "0.622\u20020.119", "1.0\u20021.0")
    assert {t["text"] for t in cards["mul"]["tags"]} == {"self = leaf x · v0", "other = leaf w · v0"}


def test_a_changed_saved_tensor_is_red_and_names_the_line() -> None:
    picture = drawn(measured("in-place"))
    (tag,) = [t for c in picture["nodes"] for t in c["tags"] if t["state"] == "changed"]
    assert tag["text"] == "result: saved v0, now v1 (line 3)"
    (card,) = [c for c in picture["nodes"] if c["changed"]]
    assert card["changed"] == [3]
    assert picture["totals"][-1] == "1 saved tensor changed since"


def test_placeholders_and_long_lists_of_saved_tensors() -> None:
    many = [saved(f"tensors[{i}]", storage=i, freed=True) for i in range(9)]
    card = node_card(node(1, "cat", saved=many), None, 3)
    assert [t["freed_at"] for t in card["tags"]] == [3] * 5
    assert card["tags"][-1]["text"] == "5 more · 40 B"
    mark = saved("result", shape=None, recomputed=True, bytes=None, storage_bytes=None, storage=None, freed=True)
    (tag,) = node_card(node(1, "tanh", kind="checkpoint", saved=[mark]), None, 3)["tags"]
    assert (tag["state"], tag["freed_at"]) == ("placeholder", None)


def test_shared_storage_counts_once() -> None:
    one, view, other = saved("a", storage=4), saved("b", storage=4, bytes=4), saved("c", storage=5, storage_bytes=100)
    assert storage_bytes([one, view, other]) == 108
    assert storage_bytes([one, replace(one, storage=6)]) == 16


def test_hostile_names_stay_text_and_fit() -> None:
    evil = "<img src=x onerror=alert(1)>" * 20
    whole = result([node(0, evil, kind="leaf", variables=[evil]), node(1, evil, kind="custom")], [edge(0, 1)])
    for card in drawn(whole)["nodes"]:
        assert card["w"] <= WIDEST
        assert text_width(card["title"], TITLE_PX, bold=True) <= card["w"]
        assert card["title"].startswith("<img")


def test_not_a_number_is_written_not_sent() -> None:
    whole = result([node(0, "x", kind="leaf", value=["NaN", "Infinity"], grad=["-Infinity", 1.0])], [])
    (card,) = drawn(whole)["nodes"]
    assert (card["value"], card["grad"]) == ("NaN\u2002∞", "−∞\u20021.0")


def test_the_pass_that_is_chosen_decides_the_graph() -> None:
    whole = measured("double backward")
    first, last = drawn(whole, 0), drawn(whole, 1)
    assert default_pass(whole) == 1
    assert len(first["passes"]) == 2
    assert "torch.autograd.grad" in first["passes"][0]
    for picture in (first, last):
        shown = {c["id"] for c in picture["nodes"]}
        assert {s["item"] for s in picture["steps"]} <= shown
    assert {c["id"] for c in first["nodes"]} != {c["id"] for c in last["nodes"]}


def test_a_result_keeps_its_figure_when_only_values_change() -> None:
    whole = measured("used twice")
    before = figure_id(whole)
    first, *others = whole.nodes
    assert figure_id(replace(whole, nodes=(replace(first, value=7.0), *others))) == before
    assert figure_id(replace(whole, edges=whole.edges[:-1])) != before


def test_open_boxes_are_framed_and_show_what_is_inside() -> None:
    whole = measured("transformer")
    repeat = next(c for c in drawn(whole)["nodes"] if c["title"].startswith("12 ×"))
    closed = drawn(whole, opened={repeat["box"]})
    box = next(c for c in closed["nodes"] if c["title"] == "1.layers.3")
    opened = drawn(whole, opened={*closed["open"], box["box"]})
    assert box["box"] in [f["box"] for f in opened["frames"]]
    assert box["id"] not in [c["id"] for c in opened["nodes"]]
    assert any("self_attn" in c["title"] for c in opened["nodes"])
    assert "12 boxes" not in closed["caveats"][0]


def picture_page() -> None:
    """A page of one figure, for AppTest."""
    from components.autograd_graph.graph_view import graph_view
    from tests.components.autograd_graph.graph_results import PROGRAMS, measured

    graph_view(measured("transformer"), program=PROGRAMS["transformer"], key="figure")


def test_opening_a_box_is_state_of_the_figure() -> None:
    app = AppTest.from_function(picture_page).run(timeout=30)
    assert not app.exception
    whole = measured("transformer")
    app.session_state["figure"] = {"view": {"figure": figure_id(whole), "pass": 0, "open": []}}
    assert not app.run(timeout=30).exception
    app.session_state["figure"] = {"view": {"figure": "of another program", "pass": 9, "open": ["x"]}}
    assert not app.run(timeout=30).exception
