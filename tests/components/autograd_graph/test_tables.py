"""Rows of the tables behind the picture, from a result written by hand."""

from __future__ import annotations

from dataclasses import replace

from components.autograd_graph.tables import leaves_table, saved_table, steps_table, tensors_table
from components.kit.tables import CELL_CHARACTERS, plain_text
from lab.records.graph import Leaf, Named, Step
from tests.components.autograd_graph.graph_results import a_pass, node, result, saved

PLACEHOLDER = saved("self", shape=None, dtype=None, bytes=None, storage_bytes=None, storage=None, current_version=1)
RESULT = result(
    [
        node(0, "x", name="AccumulateGrad", line=1),
        node(
            1,
            "mul",
            name="MulBackward0",
            saved=(PLACEHOLDER, replace(PLACEHOLDER, shape=(2,), bytes=2048, storage_bytes=2048, leaf="x")),
        ),
    ],
    [],
    passes=(a_pass(), a_pass(nodes=(node(7, "exp", name="ExpBackward0", line=4),))),
    backward=(
        (Step(1, 1.0, ([2.0, "NaN"],), (0,)), Step(0, [1 / 3, 0.0], (), (), None, [1 / 3, 0.0])),
        (Step(7, 1.0, (3.0, 4.0), ()),),
    ),
    leaves=(Leaf("x", (2,), None, 0),),
    tensors=(Named("y", (2,), "float32", "cpu", True, False, None, 1, "MulBackward0", 2),),
)


def test_steps_are_numbered_within_their_pass_and_found_on_its_own_nodes():
    rows = steps_table(RESULT)
    assert [(row["pass"], row["step"], row["node"], row["line"]) for row in rows] == [
        (1, 1, "MulBackward0", None),
        (1, 2, "AccumulateGrad", 1),
        (2, 1, "ExpBackward0", 4),
    ]
    assert rows[0]["handed on"] == '[2.0, "NaN"]'
    assert rows[2]["handed on"] == "3.0, 4.0"


def test_only_leaves_have_a_gradient_before_and_after():
    rows = steps_table(RESULT)
    assert (rows[0]["grad before"], rows[0]["grad after"]) == ("", "")
    assert (rows[1]["grad before"], rows[1]["grad after"]) == ("None", "[0.333333, 0.0]")


def test_saved_tensors_name_their_node_and_size():
    placeholder, tensor = saved_table(RESULT)
    assert (placeholder["shape"], placeholder["bytes"], placeholder["size"]) == ("", None, "")
    assert (tensor["shape"], tensor["size"], tensor["leaf"]) == ("[2]", "2.00 KiB", "x")


def test_a_missing_gradient_is_none_and_not_zero():
    assert leaves_table(RESULT) == [{"name": "x", "shape": "[2]", "grad": "None"}]
    assert tensors_table(RESULT)[0]["grad"] == "None"


def test_long_values_are_cut():
    assert len(plain_text(list(range(10_000)))) <= CELL_CHARACTERS + 2
