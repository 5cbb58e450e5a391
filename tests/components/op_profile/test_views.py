"""What the figures of the operator profile draw, from results that are made by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from components.op_profile.charts.step import BARE, ceiling_chart, ceiling_rows, parts_of, step_chart
from components.op_profile.operator_table.scene import folded
from lab.records.profiling import CallTree, Ceilings, Iteration, Operators, Spread, StepParts

PARTS = StepParts(
    data_loading_s=0.001, copy_to_device_s=None, forward_s=0.004, backward_s=0.008, optimizer_s=0.002,
    synchronisation_s=0.0, rest_s=0.0, total_s=0.015,
)  # fmt: skip
BARE_S = Spread(median=0.014, min=0.013, max=0.016)


def iterations(first_s: float) -> list[Iteration]:
    return [
        Iteration("first", replace(PARTS, total_s=first_s), first_s),
        Iteration("bare", None, 0.014),
        Iteration("profiled", PARTS, 0.015),
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_bars_of_a_step_end_where_the_step_ends(theme):
    drawn = step_chart(iterations(0.015), BARE_S, theme=theme).to_dict()
    rows = next(data for data in drawn["datasets"].values() if "part" in data[0])
    profiled = [row for row in rows if row["step"] == "profiled 1"]
    assert [row["part"] for row in profiled] == ["data loading", "forward", "backward", "optimizer"]
    assert profiled[-1]["end_ms"] == pytest.approx(15)
    assert all(b["start_ms"] == pytest.approx(a["end_ms"]) for a, b in itertools.pairwise(profiled))
    assert [row["end_ms"] for row in rows if row["step"] == BARE] == [14]
    assert "profiled 1: data loading 1 ms" in drawn["description"]


@pytest.mark.parametrize(("first_s", "cut"), [(0.03, False), (3.0, True)])
def test_a_first_step_that_dwarfs_the_others_is_cut_off_and_says_so(first_s, cut):
    drawn = step_chart(iterations(first_s), BARE_S, theme="light").to_dict()
    ends = next(data for data in drawn["datasets"].values() if "label" in data[0])
    assert ("cut off" in ends[0]["label"]) is cut
    assert max(end["at"] for end in ends) <= 30


def test_two_charts_share_an_axis_and_the_legend_names_what_is_drawn():
    brief = step_chart(iterations(0.015), BARE_S, theme="light", brief=True, limit_ms=99).to_dict()
    ends = next(data for data in brief["datasets"].values() if "label" in data[0])
    assert [end["step"] for end in ends] == ["first step", BARE, "profiled, median"]
    assert brief["layer"][0]["encoding"]["x"]["scale"]["domain"][1] > 99
    assert parts_of(iterations(0.015)) == ["data loading", "forward", "backward", "optimizer", BARE]


def test_ceilings_compare_rates():
    none = (None,) * 3
    operators = Operators(
        name=("aten::mm", "aten::add", "aten::view"), calls=(1, 1, 1), total_s=(1.0, 2.0, 0.1), self_s=(1.0, 2.0, 0.1),
        device_self_s=none, flops=(50, None, None), bytes=(0, 0, 0), moved_bytes=(10, 40, None),
        shapes=none, module=none, line=none, stack=none, is_operator=(True, True, True),
    )  # fmt: skip
    rows = ceiling_rows(operators, Ceilings(100, 40, "float32", 1, 768, 1 << 26), device=False)
    assert [(row["operator"], row["ceiling"], row["share"]) for row in rows] == [
        ("aten::mm", "arithmetic", 0.5), ("aten::mm", "memory traffic", 0.25), ("aten::add", "memory traffic", 0.5),
    ]  # fmt: skip
    assert "aten::mm" in ceiling_chart(rows, theme="dark").to_dict()["description"]


def test_the_wrapper_of_a_backward_node_and_the_node_are_one_row():
    wrapper = "autograd::engine::evaluate_function: MmBackward0"
    calls = CallTree(
        parent=(-1, 0, 1, 2), name=("backward", wrapper, "MmBackward0", "aten::mm"), is_operator=(False, True, True, True),
        shapes=("", "", "[[1]]", "[[1]]"), module=(None, None, "head", "head"), line=(None, None, 3, 3), stack=("", "", "f", "f"),
        calls=(1, 2, 2, 2), self_s=(1.0, 0.5, 0.25, 4.0), total_s=(5.75, 4.75, 4.25, 4.0), device_self_s=(None,) * 4,
        flops=(None, None, None, 8), bytes=(0, 1, 2, 3), moved_bytes=(None,) * 4,
    )  # fmt: skip
    table = folded(calls)
    assert table["name"] == ["backward", "MmBackward0", "aten::mm"]
    assert table["parent"] == [-1, 0, 1]
    assert table["self_s"] == [1.0, 0.75, 4.0]
    assert table["total_s"] == [5.75, 4.75, 4.0]
    assert table["calls"] == [1, 2, 2]
    assert table["module"][1] == "head"
    assert sum(table["self_s"]) == table["total_s"][0]
    assert table["flops"] == [None, None, 8]
