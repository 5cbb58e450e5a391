"""Nodes and edges against ``next_functions`` walked here, and against what torchviz draws."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

import pytest
import torch
from torchviz import make_dot

from lab.instruments.graph import book as graph_book
from lab.instruments.graph.to_records import Numbering
from tests.lab.instruments.graph.graphs import GRAPHS, run_plainly, traced

pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning")  # torchviz
FUNCTION = re.compile(r"Backward\d*$|^AccumulateGrad$|^CopySlices$|^AsStridedBackward")


def next_functions_edges(root: Any) -> set[tuple[int, int, int, int]]:
    """(id of source, output index, id of target, input slot) for every edge, by a walk that shares nothing with ours."""
    found, seen, todo = set(), [], [root]
    while todo:
        node = todo.pop(0)
        if any(node is other for other in seen):
            continue
        seen.append(node)
        for slot, (parent, index) in enumerate(node.next_functions):
            if parent is not None:
                found.add((id(parent), index, id(node), slot))
                todo.append(parent)
    return found


def check_edges(code: str) -> None:
    _, graph, names = traced(code)
    live = {seen.serial: id(node) for seen, node in graph.nodes}
    got = [(live[source.serial], index, live[target.serial], slot) for source, target, index, slot in graph.edges]
    expected = next_functions_edges(names["loss"].grad_fn)
    assert len(got) == len(expected)
    assert set(got) == expected
    assert len(live) == len(graph.nodes) == len({node for edge in expected for node in (edge[0], edge[2])})
    numbering = Numbering(graph)
    records, nodes = numbering.edges(graph), numbering.nodes()
    assert [n.id for n in nodes] == list(range(len(nodes)))
    assert len(set(records)) == len(expected)
    named = Counter((nodes[e.source].name, e.index, nodes[e.target].name, e.slot) for e in records)
    classes = {id(node): type(node).__name__ for _, node in graph.nodes}
    assert named == Counter((classes[s], index, classes[t], slot) for s, index, t, slot in expected)


@pytest.mark.parametrize("title", GRAPHS)
def test_edges_are_those_of_next_functions(title: str) -> None:
    check_edges(GRAPHS[title])


@pytest.mark.parametrize("fault", ["index", "slot", "lost"])
def test_a_wrong_edge_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = graph_book.GraphBook.walk

    def wrong(book: Any, roots: Any) -> Any:
        graph = walk(book, roots)
        source, target, index, slot = graph.edges.pop()
        if fault != "lost":
            graph.edges.append((source, target, index + (fault == "index"), slot + (fault == "slot")))
        return graph

    monkeypatch.setattr(graph_book.GraphBook, "walk", wrong)
    with pytest.raises(AssertionError):
        check_edges(GRAPHS["cat, stack and unbind"])


def torchviz_counts(loss: torch.Tensor) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """(nodes by class, edges by (class of source, class of target)) in torchviz's picture."""
    source = make_dot(loss).source
    labels = {
        at: label.split("\\n")[0].strip() for at, label in re.findall(r'^\s*(\d+) \[label="?([^"\]]+)', source, re.M)
    }
    functions = {at: label for at, label in labels.items() if FUNCTION.search(label)}
    arrows = re.findall(r"^\s*(\d+) -> (\d+)", source, re.M)
    return (
        Counter(functions.values()),
        Counter((functions[a], functions[b]) for a, b in arrows if a in functions and b in functions),
    )


def counts(code: str) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    _, graph, _ = traced(code)
    return (
        Counter(seen.name for seen, _ in graph.nodes),
        Counter((source.name, target.name) for source, target, _, _ in graph.edges),
    )


@pytest.mark.parametrize("title", GRAPHS)
def test_nodes_and_edges_are_those_of_torchviz(title: str) -> None:
    assert counts(GRAPHS[title]) == torchviz_counts(run_plainly(GRAPHS[title])["loss"])


def test_another_graph_differs_from_torchviz() -> None:
    assert counts(GRAPHS["mlp"].replace("Tanh", "ReLU")) != torchviz_counts(run_plainly(GRAPHS["mlp"])["loss"])
    assert counts(GRAPHS["used many times"] + "loss = loss * 1\n") != counts(GRAPHS["used many times"])


def test_two_to_the_thirty_paths_are_thirty_one_nodes() -> None:
    code = "x = torch.tensor(1.0, requires_grad=True)\nloss = x\nfor _ in range(30):\n    loss = loss + loss\n"
    _, graph, names = traced(code)
    assert (len(graph.nodes), len(graph.edges)) == (31, 60)
    names["loss"].backward()
    assert names["x"].grad == 2**30


def test_a_chain_of_20000_operations_is_walked_once_and_without_recursion() -> None:
    code = "x = torch.tensor(1.0, requires_grad=True)\nloss = x\nfor _ in range(20_000):\n    loss = loss + 1\n"
    trace, _, names = traced(code)
    node, visits = names["loss"].grad_fn, Counter()
    see = trace.book.see
    trace.book.see = lambda n: visits.update(["see"]) or see(n)  # pyright: ignore[reportAttributeAccessIssue]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        graph = trace.walk([node])
        numbering = Numbering(graph)
        nodes, edges = numbering.nodes(), numbering.edges(graph)
    finally:
        sys.setrecursionlimit(limit)
    assert (len(nodes), len(edges)) == (20_001, 20_000)
    assert visits["see"] <= len(nodes) + len(edges) + 1
