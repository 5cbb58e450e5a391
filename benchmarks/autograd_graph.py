"""A typed program: warm against cold. The walk: ours against torchviz on the same graphs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torchviz import make_dot

from benchmarks.turns import in_turns, line
from lab.execution.executor import Executor
from lab.experiments.autograd_graph import Params
from lab.instruments.graph.program_trace import ProgramTrace
from lab.instruments.graph.to_records import Numbering
from lab.program import run as program

_SMALL = "x = torch.tensor([1.0, 2.0], requires_grad=True)\nloss = (x * x).sum()\nloss.backward()\n"


def measure() -> Iterator[dict[str, Any]]:
    yield _warm_run()
    for nodes in (150, 900, 3650):
        yield _walk(nodes)
    yield _long_walk()
    for operations in (100, 1000, 10_000):
        yield _traced(operations)


def _warm_run() -> dict[str, Any]:
    executor, round_number = Executor(), 0

    def warm() -> None:
        nonlocal round_number
        round_number += 1  # another text each time, so that nothing is remembered
        params = Params(code=f"{_SMALL}n = {round_number}\n")
        job = executor.wait(executor.submit("autograd_graph", params, visitor="benchmark", fresh=True), 60)
        assert job.state == "done", job

    def cold() -> None:
        subprocess.run([sys.executable, "-c", f"import torch\n{_SMALL}"], check=True)

    try:
        ours, theirs = in_turns(warm, cold, rounds=7, warm_up=2)
    finally:
        executor.close()
    return line(
        "typed program, warm spare",
        ours,
        theirs,
        "whole journey with graph and findings; theirs: a cold Python with torch",
    )


def _program(nodes: int) -> str:
    """A residual network of small layers with about so many nodes."""
    return (
        "x = torch.ones(2, 4)\n"
        "weights = [torch.ones(4, 4, requires_grad=True) for _ in range(BLOCKS)]\n"
        "h = x\n"
        "for w in weights:\n"
        "    h = h + torch.tanh(h @ w)\n"
        "loss = h.sum()\n"
    ).replace("BLOCKS", str(nodes // 4))


def _recorded(source: str) -> tuple[ProgramTrace, torch.Tensor]:
    names = program.namespace()
    trace = ProgramTrace(program.FILE, names)
    with trace:
        ran = program.run_program(source, names, wall_s=60, printed_bytes=1000)
    assert ran.ended is None, ran.ended
    return trace, ran.namespace["loss"]


def _walk(nodes: int) -> dict[str, Any]:
    trace, loss = _recorded(_program(nodes))
    assert loss.grad_fn is not None
    root = loss.grad_fn

    def ours() -> int:
        graph = trace.walk([root])
        numbering = Numbering(graph)
        return len(numbering.nodes()) + len(numbering.edges(graph))

    def theirs() -> None:
        make_dot(loss, show_attrs=True, show_saved=True)

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)  # torchviz walks recursively
    try:
        ours_s, theirs_s = in_turns(ours, theirs, rounds=5)
    finally:
        sys.setrecursionlimit(before)
    found = len(trace.walk([root]).nodes)
    return line(
        f"walk, {found} nodes",
        ours_s,
        theirs_s,
        "records with saved tensors, versions, lines; theirs: torchviz with attributes and saved",
    )


def _long_walk() -> dict[str, Any]:
    trace, loss = _recorded(
        "y = torch.ones(1, requires_grad=True)\nfor _ in range(20000):\n    y = y * 1.0001\nloss = y.sum()\n"
    )
    root = loss.grad_fn
    assert root is not None
    ours_s, theirs_s = in_turns(lambda: trace.walk([root]), lambda: _visit(root), rounds=5)
    detail = "a chain of 20,000 operations with saved slots read; theirs: only visiting next_functions"
    return line("walk, 20,000-operation chain", ours_s, theirs_s, detail, better="lower")


def _visit(root: Any) -> int:
    seen, todo = set(), [root]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(parent for parent, _ in node.next_functions if parent is not None)
    return len(seen)


def _traced(operations: int) -> dict[str, Any]:
    """The same program under the trace and bare, forward and backward."""
    source = (
        "x, w = (torch.ones(8, 8, requires_grad=True) for _ in range(2))\n"
        "h = x\n"
        f"for _ in range({operations // 4}):\n"
        "    h = torch.tanh(h @ w) * 0.9 + x\n"
        "loss = h.sum()\n"
        "loss.backward()\n"
    )

    def bare() -> None:
        ran = program.run_program(source, program.namespace(), wall_s=60, printed_bytes=1000)
        assert ran.ended is None, ran.ended

    ours_s, theirs_s = in_turns(lambda: _recorded(source), bare, rounds=5)
    detail = (
        "every operation with operands, results, values and nodes, and each step of backward; theirs: the program alone"
    )
    return line(f"traced program, {operations:,} operations", ours_s, theirs_s, detail, better="lower")
