"""Rows of the tables behind the picture, from a result written by hand."""

from __future__ import annotations

from typing import Any

from components.autograd_graph.tables import leaves_table, saved_table, steps_table, tensors_table
from components.kit.tables import CELL_CHARACTERS, plain_text

SAVED = {
    "slot": "self",
    "shape": None,
    "dtype": None,
    "bytes": None,
    "storage_bytes": None,
    "storage": None,
    "saved_version": 0,
    "current_version": 1,
    "leaf": None,
    "freed": False,
}
RESULT: dict[str, Any] = {
    "nodes": [
        {"id": 0, "name": "AccumulateGrad", "line": 1, "saved": []},
        {
            "id": 1,
            "name": "MulBackward0",
            "line": None,
            "saved": [SAVED, SAVED | {"shape": [2], "bytes": 2048, "storage_bytes": 2048, "leaf": "x"}],
        },
    ],
    "passes": [{"nodes": []}, {"nodes": [{"id": 7, "name": "ExpBackward0", "line": 4}]}],
    "backward": [
        [
            {"node": 1, "incoming": 1.0, "given": [[2.0, "NaN"]], "parents": [0], "before": None, "after": None},
            {"node": 0, "incoming": [1 / 3, 0.0], "given": [], "parents": [], "before": None, "after": [1 / 3, 0.0]},
        ],
        [{"node": 7, "incoming": 1.0, "given": [3.0, 4.0], "parents": [], "before": None, "after": None}],
    ],
    "leaves": [{"name": "x", "shape": [2], "grad": None, "node": 0}],
    "tensors": [
        {
            "name": "y",
            "shape": [2],
            "dtype": "float32",
            "device": "cpu",
            "requires_grad": True,
            "is_leaf": False,
            "grad": None,
            "node": 1,
            "grad_fn": "MulBackward0",
            "line": 2,
        }
    ],
}


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
