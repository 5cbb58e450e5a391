"""Results for the tests of the graph picture: real runs of small programs, and large graphs made by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from lab.contract import silent
from lab.experiments import autograd_graph
from lab.records.graph import Edge, GraphResult, Node, Pass, Saved
from lab.wire import decode, encode

PROGRAMS = {
    "used twice": """x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([0.5, -1.0], requires_grad=True)
h = torch.sigmoid(x * w)
loss = (h + x).sum()
loss.backward()
""",
    "in-place": """a = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
p = torch.sigmoid(a)
p[1] = 0.0
loss = p.sum()
loss.backward()
""",
    "two backwards": """x = torch.tensor([1.0, 2.0], requires_grad=True)
loss = (x ** 2).sum()
loss.backward(retain_graph=True)
loss.backward()
""",
    "double backward": """x = torch.tensor(2.0, requires_grad=True)
y = x ** 3
(g,) = torch.autograd.grad(y, x, create_graph=True)
loss = g ** 2
loss.backward()
""",
    "doubling": """x = torch.tensor(1.0, requires_grad=True)
y = x
for _ in range(30):
    y = y + y
loss = y
loss.backward()
""",
    "split": """x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
a, b = x.split(2)
loss = (a * 3 + b * b + b).sum()
loss.backward()
""",
    "transformer": """torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
net = nn.Sequential(nn.Embedding(20, 8), nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(8, 20))
tokens = torch.randint(0, 20, (2, 5))
loss = F.cross_entropy(net(tokens)[:, :-1].reshape(-1, 20), tokens[:, 1:].reshape(-1))
loss.backward()
""",
    "recurrent": """torch.manual_seed(0)
cell, head, h, losses = nn.GRUCell(3, 4), nn.Linear(4, 1), torch.zeros(1, 4), []
for t in range(40):
    h = cell(torch.randn(1, 3), h)
    losses.append(head(h).pow(2).mean())
loss = torch.stack(losses).sum()
loss.backward()
""",
    "no graph": "x = torch.ones(2)\nloss = x.sum()\n",
}


@cache
def measured(name: str) -> GraphResult:
    """What autograd recorded of a program, as it comes from a worker."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker: several threads on a busy machine take longer than the program may
    try:
        return decode(GraphResult, encode(autograd_graph.run(autograd_graph.Params(code=PROGRAMS[name]), silent)))
    finally:
        torch.set_num_threads(threads)


def node(number: int, label: str, **known: Any) -> Node:
    """A node made by hand."""
    blank = Node(
        id=number,
        name=f"{label.title()}Backward0",
        kind="function",
        label=label,
        variables=(),
        shape=(2,),
        dtype="float32",
        device="cpu",
        line=None,
        module=None,
        value=None,
        grad=None,
        saved=(),
    )
    return replace(blank, **known)


def saved(slot: str, **known: Any) -> Saved:
    """A saved tensor made by hand."""
    blank = Saved(
        slot=slot,
        shape=(2,),
        dtype="float32",
        bytes=8,
        storage_bytes=8,
        storage=0,
        saved_version=0,
        current_version=0,
        leaf=None,
        variable=None,
        view_of=None,
        freed=False,
        recomputed=False,
        changed_line=None,
        changed_by="",
    )
    return replace(blank, **known)


def edge(source: int, target: int, slot: int = 0, index: int = 0) -> Edge:
    return Edge(source, target, index, slot)


def result(nodes: list[Node], edges: list[Edge], **known: Any) -> GraphResult:
    """A result made by hand, without a backward pass."""
    blank = GraphResult(
        root="loss",
        root_node=nodes[-1].id if nodes else None,
        no_graph="",
        nodes=tuple(nodes),
        edges=tuple(edges),
        leaves=(),
        backward=(),
        passes=(),
        passes_cut=0,
        kept_bytes=0,
        kept_bytes_after=0,
        printed="",
        echo="",
        warned=(),
        variables={},
        tensors=(),
        cuts=(),
        device="cpu",
        seconds=0.0,
        fault=None,
    )
    return replace(blank, **known)


def a_pass(**known: Any) -> Pass:
    """A backward pass made by hand, over the graph of the result."""
    blank = Pass(
        call="loss.backward",
        by="program",
        line=7,
        root=None,
        retain_graph=False,
        create_graph=False,
        kept_bytes=0,
        kept_bytes_after=0,
        nodes=(),
        edges=(),
        steps_cut=0,
        error="",
    )
    return replace(blank, **known)


def chain(operations: int) -> GraphResult:
    """x, then mul by w and add in turn, then sum: a loop of two operations a round."""
    nodes = [node(0, "x", kind="leaf", line=1), node(1, "w", kind="leaf", line=2)]
    edges = []
    for i in range(2, operations + 2):
        multiplies = i % 2 == 0
        nodes.append(node(i, "mul" if multiplies else "add", line=4 if multiplies else 5))
        edges.append(edge(0 if i == 2 else i - 1, i))
        edges += [edge(1, i, slot=1)] if multiplies else []
    nodes.append(node(operations + 2, "sum", kind="output", line=6))
    return result(nodes, [*edges, edge(operations + 1, operations + 2)])


CHAIN_PROGRAM = """x = torch.ones(2, requires_grad=True)
w = torch.ones(2, requires_grad=True)
for _ in range(10_000):
    x = x * w
    x = x + 1
loss = x.sum()
"""
