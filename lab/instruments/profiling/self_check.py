"""The operator trace against its oracles on this host: conservation, PyTorch's own table, closed forms."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.profiler import record_function

from lab.instruments.profiling.places import NOWHERE
from lab.instruments.profiling.session import OpSession
from lab.instruments.profiling.tables import group, merge_calls
from lab.instruments.profiling.tree import Tree, build_tree
from lab.records.profiling import Operators


def _profiled(call: Callable[[], object]) -> tuple[OpSession, Tree]:
    session = OpSession("cpu")
    with session, record_function("all"):
        call()
    return session, build_tree(session.events)


def _table(tree: Tree) -> Operators:
    kinds = tree.events.kind
    rows = [row for row, kind in enumerate(kinds) if kind in ("op", "range") and tree.stands_for[row] == row]
    return group(merge_calls([(tree, rows, [NOWHERE] * len(kinds))]), "name", device=False)


def _training_step() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    model(torch.ones(3, 8)).square().mean().backward()


def _self_times_sum_to_the_range() -> None:
    tree = _profiled(_training_step)[1]
    whole, summed = tree.events.duration_ns[tree.events.name.index("all")], sum(tree.self_ns)
    assert whole == summed, f"the range took {whole} ns, its self times sum to {summed} ns"


def _the_table_equals_that_of_torch() -> None:
    session, tree = _profiled(_training_step)
    table = _table(tree)
    ours = {
        name: (calls, round(self_s * 1e9))
        for name, calls, self_s in zip(table.name, table.calls, table.self_s, strict=True)
    }
    theirs = {
        row.key: (row.count, round(row.self_cpu_time_total * 1e3))
        for row in session.profiler.key_averages()
        if row.key != "[memory]"
    }
    differing = {name for name in ours | theirs if ours.get(name) != theirs.get(name)}
    assert not differing, f"{sorted(differing)[:3]} differ"


def _flops_are_those_of_the_formula() -> None:
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    q = torch.randn(2, 4, 16, 8)
    table = _table(_profiled(lambda: (a @ b, F.scaled_dot_product_attention(q, q, q)))[1])
    counted = {name: n for name, n in zip(table.name, table.flops, strict=True) if n}
    product = counted.pop("aten::mm", 0)
    assert product == 2 * 5 * 7 * 3, f"a product of (5, 7) and (7, 3) was counted as {product}"
    assert sum(counted.values()) == 2 * 2 * 2 * 4 * 16 * 16 * 8, f"attention was counted as {counted}"


SELF_TESTS: dict[str, Callable[[], None]] = {
    "operator trace: self times sum to the step": _self_times_sum_to_the_range,
    "operator trace: the table equals that of torch": _the_table_equals_that_of_torch,
    "operator trace: FLOPs of products and attention": _flops_are_those_of_the_formula,
}
