"""Times, memory and FLOPs of a profile: against key_averages, conservation, closed forms and another counter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import record_function
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from lab.instruments.profiling import cost
from lab.instruments.profiling.places import NOWHERE, CallMarks, same_operations
from lab.instruments.profiling.self_check import SELF_TESTS
from lab.instruments.profiling.session import OpSession, SessionBusyError
from lab.instruments.profiling.tables import GROUPS, group, merge_calls
from lab.instruments.profiling.tree import Tree, build_tree
from lab.workloads import models


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def profiled(call) -> tuple[OpSession, Tree]:
    call()
    session = OpSession("cpu")
    with session, record_function("all"):
        call()
    return session, build_tree(session.events)


def training(name: str = "gpt", **sizes: int):
    torch.manual_seed(0)
    task = models.build(name, **{"layers": 1, "width": 64, "batch": 2, "seq": 16} | sizes)  # pyright: ignore[reportArgumentType]
    optimizer = torch.optim.Adam(task.model.parameters(), foreach=False)

    def step() -> None:
        task.loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def own_rows(tree: Tree) -> list[int]:
    kinds = tree.events.kind
    return [row for row in range(len(kinds)) if kinds[row] in ("op", "range") and tree.stands_for[row] == row]


def operators(tree: Tree, by: str = "name"):
    return group(merge_calls([(tree, own_rows(tree), [NOWHERE] * len(tree.parent))]), by, device=False)


@pytest.fixture(scope="module", params=["mlp", "cnn", "gpt", "lstm"])
def trained(request: pytest.FixtureRequest) -> tuple[OpSession, Tree]:
    return profiled(training(request.param))


def root_of(tree: Tree) -> int:
    return tree.events.name.index("all")


def misfit_ns(tree: Tree) -> int:
    return tree.events.duration_ns[root_of(tree)] - sum(tree.self_ns)


def test_self_times_sum_to_the_enclosing_range_to_the_nanosecond(trained):
    assert misfit_ns(trained[1]) == 0


def test_a_planted_nanosecond_of_self_time_is_found(trained):
    tree = trained[1]
    tree.self_ns[root_of(tree) + 1] += 1
    try:
        assert misfit_ns(tree) == -1
    finally:
        tree.self_ns[root_of(tree) + 1] -= 1


def recursive_ns(session: OpSession) -> dict[str, float]:
    """name -> time of the events inside another of the same name: torch counts it again in the total of the row."""
    found: dict[str, float] = {}
    for event in session.profiler.events() or ():
        above = event.cpu_parent
        while above is not None and above.name != event.name:
            above = above.cpu_parent
        if above is not None:
            found[event.name] = found.get(event.name, 0.0) + event.cpu_time_total * 1e3
    return found


def table_of_torch(session: OpSession) -> dict[str, tuple[float, ...]]:
    """name -> calls, self and total nanoseconds, self bytes."""
    again = recursive_ns(session)
    return {
        row.key: (
            row.count,
            row.self_cpu_time_total * 1e3,
            row.cpu_time_total * 1e3 - again.get(row.key, 0.0),
            row.self_cpu_memory_usage,
        )
        for row in session.profiler.key_averages()
        if row.key != "[memory]"
    }


def differing(tree: Tree, torchs: dict[str, tuple[float, ...]]) -> list[str]:
    ours = operators(tree)
    rows = zip(ours.name, ours.calls, ours.self_s, ours.total_s, ours.bytes, strict=True)
    mine = {name: (calls, self_s * 1e9, total_s * 1e9, size) for name, calls, self_s, total_s, size in rows}
    assert mine.keys() == torchs.keys()
    return [name for name in mine if mine[name] != pytest.approx(torchs[name], rel=1e-9, abs=1e-3)]


def test_the_table_equals_key_averages_row_by_row(trained):
    session, tree = trained
    assert not differing(tree, table_of_torch(session))


def test_a_planted_nanosecond_in_the_table_is_found(trained):
    session, tree = trained
    torchs = table_of_torch(session)
    count, *rest = torchs["aten::add_"] if "aten::add_" in torchs else torchs["aten::mul"]
    name = "aten::add_" if "aten::add_" in torchs else "aten::mul"
    assert differing(tree, torchs | {name: (count, rest[0] + 1, *rest[1:])}) == [name]


def test_the_events_in_memory_are_those_of_the_exported_trace(trained, tmp_path):
    session, tree = trained
    path = tmp_path / "trace.json"
    session.profiler.export_chrome_trace(str(path))
    exported = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation")]
    mine = [row for row, kind in enumerate(tree.events.kind) if kind in ("op", "range")]
    assert sorted(e["name"] for e in exported) == sorted(tree.events.name[row] for row in mine)
    assert sum(e["dur"] for e in exported) == pytest.approx(sum(tree.events.duration_ns[row] for row in mine) / 1e3)


def test_every_grouping_shares_out_the_same_time(trained):
    tree = trained[1]
    for by in GROUPS:
        table = operators(tree, by)
        assert sum(table.self_s) == pytest.approx(tree.events.duration_ns[root_of(tree)] / 1e9, rel=1e-9)
        assert sum(table.calls) == len(own_rows(tree))


def test_totals_are_self_plus_children_everywhere(trained):
    tree = trained[1]
    calls = merge_calls([(tree, own_rows(tree), [NOWHERE] * len(tree.parent))])
    below = [0.0] * len(calls.name)
    for at, parent in enumerate(calls.parent):
        if parent >= 0:
            below[parent] += calls.total_s[at]
    for at, total_s in enumerate(calls.total_s):
        assert calls.self_s[at] + below[at] == pytest.approx(total_s, rel=1e-9, abs=1e-12)


def counted(call) -> dict[str, int]:
    table = operators(profiled(call)[1])
    return {name: n for name, n in zip(table.name, table.flops, strict=True) if n is not None}


def test_products_cost_2mnk():
    a, b, c = torch.randn(7, 11), torch.randn(11, 13), torch.randn(13)
    assert counted(lambda: a @ b) == {"aten::mm": 2 * 7 * 11 * 13}
    assert counted(lambda: torch.addmm(c, a, b)) == {"aten::addmm": 2 * 7 * 11 * 13}
    assert counted(lambda: torch.bmm(a.expand(3, 7, 11), b.expand(3, 11, 13))) == {"aten::bmm": 3 * 2 * 7 * 11 * 13}


def test_attention_costs_two_products_forward_and_five_backward():
    q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    found = counted(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward())
    product = 2 * 2 * 4 * 16 * 16 * 8
    forward = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert found == {forward: 2 * product, f"{forward}_backward": 5 * product}


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 8, 3),
        nn.Conv2d(4, 8, 3, stride=2, padding=1),
        nn.Conv2d(3, 8, (3, 5), dilation=2, padding=(2, 4)),
        nn.Conv1d(3, 8, 4, stride=3),
        nn.ConvTranspose2d(3, 8, 3, stride=2),
    ],
    ids=lambda conv: f"{type(conv).__name__}-{conv.groups}-{conv.stride}",
)
def test_convolutions_agree_with_the_other_counter(conv):
    x = torch.randn(2, conv.in_channels, *[20] * (len(conv.kernel_size)), requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        conv(x).sum().backward()
    assert sum(counted(lambda: conv(x).sum().backward()).values()) == counter.get_total_flops()


def test_a_grouped_convolution_costs_what_its_groups_cost():
    """FlopCounterMode counts the backward of groups too high, so the oracle is one convolution a group."""
    x = torch.randn(2, 4, 20, 20, requires_grad=True)
    grouped, one = nn.Conv2d(4, 8, 3, groups=2), nn.Conv2d(2, 4, 3)
    found = counted(lambda: grouped(x).sum().backward())
    assert found == {name: 2 * n for name, n in counted(lambda: one(x[:, :2]).sum().backward()).items()}


def test_the_fused_lstm_costs_what_its_cells_cost():
    lstm, x = nn.LSTM(16, 32, batch_first=True), torch.randn(4, 7, 16)
    cell, state = nn.LSTMCell(16, 32), (torch.zeros(4, 32), torch.zeros(4, 32))
    with FlopCounterMode(display=False) as counter:
        for t in range(7):
            state = cell(x[:, t], state)
    assert counted(lambda: lstm(x)) == {"aten::mkldnn_rnn_layer": counter.get_total_flops()}


def test_a_planted_factor_is_found(monkeypatch):
    monkeypatch.setitem(
        cost._FLOPS, "aten::mm", lambda shapes, arguments: cost._bmm([[1, *s] for s in shapes], ()) // 2
    )
    with pytest.raises(AssertionError):
        test_products_cost_2mnk()


def test_moved_bytes_are_inputs_and_outputs_once():
    a, b, c = torch.randn(7, 11), torch.randn(11, 13), torch.randn(7, 1)

    def moved(call) -> dict[str, int | None]:
        table = operators(profiled(call)[1])
        return dict(zip(table.name, table.moved_bytes, strict=True))

    assert moved(lambda: a @ b)["aten::mm"] == 4 * (7 * 11 + 11 * 13 + 7 * 13)
    assert moved(lambda: a + c)["aten::add"] == 4 * (7 * 11 + 7 + 7 * 11)
    assert moved(lambda: a.clone())["aten::copy_"] == 4 * 2 * 7 * 11
    assert moved(lambda: a.to(torch.bfloat16))["aten::copy_"] == (2 + 4) * 7 * 11


def test_freed_memory_is_negative_and_belongs_to_whoever_freed_it():
    kept = []

    def fill_and_clear():
        with record_function("fill"):
            kept.append(torch.ones(500))
        with record_function("clear"):
            kept.clear()

    tree = profiled(fill_and_clear)[1]
    row = {name: at for at, name in enumerate(tree.events.name)}
    assert (tree.total_bytes[row["fill"]], tree.self_bytes[row["clear"]]) == (2000, -2000)


def test_places_name_the_module_and_the_line():
    step = training("gpt")
    step()
    marks, session, plain = CallMarks([models.__file__]), OpSession("cpu"), OpSession("cpu")
    with plain, record_function("all"):
        step()
    with session, marks, record_function("all"):
        step()
    marked, tree = build_tree(session.events), build_tree(plain.events)
    places = same_operations(tree, marked, marks.places(marked))
    assert places
    source = Path(models.__file__).read_text().splitlines()
    seen = {
        "aten::gelu": "self.activation",
        "aten::gelu_backward": "self.activation",
        "aten::embedding": "self.token(ids)",
    }
    for name, text in seen.items():
        row = tree.events.name.index(name)
        line = places[row].line
        assert line
        assert text in source[line - 1]
        assert places[row].module
    attention = places[tree.events.name.index("aten::_scaled_dot_product_flash_attention_for_cpu_backward")]
    assert attention.module == "blocks.0 (GPTBlock)"
    assert attention.stack.startswith(f"forward (line {attention.line})")


def test_a_step_that_ran_other_operations_gets_no_places():
    one, two = profiled(lambda: torch.ones(2).exp())[1], profiled(lambda: torch.ones(2).log())[1]
    assert same_operations(one, two, [NOWHERE] * len(two.parent)) is None


def test_a_second_session_is_refused_and_the_first_stays_whole():
    outer = OpSession("cpu")
    with outer:
        torch.ones(2).exp()
        with pytest.raises(SessionBusyError, match="open in this process"), OpSession("cpu"):
            pass
        torch.ones(2).log()
    assert {"aten::exp", "aten::log"} <= set(outer.events.name)
    with OpSession("cpu") as again:
        torch.ones(2).sin()
    assert "aten::sin" in again.events.name


def test_an_error_inside_ends_the_session():
    with pytest.raises(ZeroDivisionError), OpSession("cpu"):
        raise ZeroDivisionError
    test_a_second_session_is_refused_and_the_first_stays_whole()


def test_device_time_is_counted_once_at_the_operation_that_launched_it():
    tree = profiled(lambda: torch.ones(2).exp())[1]
    events, row = tree.events, tree.events.name.index("aten::exp")
    for column, value in {"name": "exp_kernel", "kind": "kernel", "start_ns": events.start_ns[row] + 10**9, "duration_ns": 700,
                          "thread": 7, "number": 0, "launched_by": events.number[row], "sequence": -1,
                          "forward_thread": 0, "shapes": (), "dtypes": (), "arguments": (), "bytes": 0, "details": ""}.items():  # fmt: skip
        getattr(events, column).append(value)
    tree = build_tree(events)
    assert tree.device_ns[row] == sum(tree.device_ns) == 700
    assert misfit_ns(tree) == 0  # device time is not in host time


@pytest.mark.parametrize("name", SELF_TESTS)
def test_the_self_check_holds(name):
    SELF_TESTS[name]()


def test_the_self_check_finds_a_planted_factor(monkeypatch):
    monkeypatch.setitem(cost._FLOPS, "aten::mm", lambda shapes, arguments: 1)
    with pytest.raises(AssertionError, match="counted as 1"):
        SELF_TESTS["operator trace: FLOPs of products and attention"]()


def fastest_matmul_s(session: OpSession) -> float:
    events = session.events
    return min(events.duration_ns[row] for row in range(len(events)) if events.name[row] == "aten::mm") / 1e9


def matmul_ratio(reported_s=fastest_matmul_s, rounds: int = 12) -> float:
    """Fastest matmul as profiled over the fastest as timed, in turns: noise only adds, so the fastest of many compare."""
    x = torch.randn(1024, 1024)
    timer = Timer("x @ x", globals={"x": x}, num_threads=1)
    timed, profiled_s = [], []
    for _ in range(rounds):
        timed.append(timer.timeit(3).mean)
        session = OpSession("cpu")
        with session:
            for _ in range(3):
                torch.mm(x, x)
        profiled_s.append(reported_s(session))
    assert min(timed) > 0.002
    return min(profiled_s) / min(timed)


def test_a_matmul_of_over_2_ms_takes_what_the_timer_says():
    assert matmul_ratio() == pytest.approx(1, abs=0.08)


def test_a_clock_in_the_wrong_unit_is_caught():
    assert matmul_ratio(lambda session: fastest_matmul_s(session) * 1.25, rounds=4) != pytest.approx(1, abs=0.08)
