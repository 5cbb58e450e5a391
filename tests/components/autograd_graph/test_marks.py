"""Marks: each line once, the first site heaviest; what one of two graphs lacks is found, and no more."""

from __future__ import annotations

from dataclasses import replace

from components.autograd_graph.graph_view.marks import own_lines, own_nodes, site_marks
from components.autograd_graph.graph_view.scene import folder, scene
from lab.contract import Site, silent
from lab.experiments import autograd_graph
from lab.records.graph import GraphResult

BEFORE = (
    "x = torch.tensor([1.0, 2.0], requires_grad=True)\ny = torch.tanh(x)\ny += 1\nloss = y.sum()\nloss.backward()\n"
)
AFTER = BEFORE.replace("y += 1", "y = y + 1")


def measured(code: str) -> GraphResult:
    return replace(autograd_graph.run(autograd_graph.Params(code=code), silent))


def test_each_line_is_marked_once_and_the_first_site_is_heaviest() -> None:
    sites = (Site(3, "overwritten here", "y"), Site(2, "kept here", "y"), Site(3, "fails here"), Site(3, "fails here"))
    assert [(m["line"], m["rank"], m["text"]) for m in site_marks(sites)] == [
        (3, 0, "overwritten here: y · fails here"),
        (2, 1, "kept here: y"),
    ]


def test_lines_that_the_other_program_lacks() -> None:
    assert own_lines(AFTER, BEFORE) == [3]
    assert own_lines("a\nb\nc", "a\nc") == [2]
    assert own_lines("a\nc", "a\nb\nc") == []
    assert own_lines(BEFORE, BEFORE) == []


def test_only_nodes_of_changed_lines_are_marked() -> None:
    a, b = measured(BEFORE), measured(AFTER)
    for one, other, program in ((a, b, BEFORE), (b, a, AFTER)):
        own = own_nodes(one.nodes, program, other)
        assert [n.line for n in one.nodes if n.id in own] == [3]
        drawn = scene(one, 0, folder(one)(0), None, own=own)
        assert [card["line"] for card in drawn["nodes"] if card["own"]] == [3]
    assert not own_nodes(a.nodes, BEFORE, a)


def test_a_line_that_moved_is_not_another_one() -> None:
    moved = "# a comment\n" + BEFORE
    assert not own_nodes(measured(moved).nodes, moved, measured(BEFORE))
