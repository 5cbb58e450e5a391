"""What the memory charts are drawn from: exact sums, units, words."""

from __future__ import annotations

from typing import Any

import pytest

from components.kit.palette import MEMORY
from components.memory_timeline.charts import memory as charts
from components.memory_timeline.figures import owners_rows
from components.memory_timeline.timeline.scene import LABELS, peak_text, scene, short

ZERO = dict.fromkeys(LABELS, 0)
RUNS = [
    {"setting": "fp32", "chosen": True, "peak_bytes": 3 << 20, "peak_phase": "backward", "failed": "",
     "categories": ZERO | {"parameters": 1 << 20, "saved": 2 << 20}, "curve": {"index": [0, 1], "bytes": [1, 2]}},
    {"setting": "bf16 autocast", "chosen": False, "peak_bytes": 2 << 20, "peak_phase": "optimizer", "failed": "",
     "categories": ZERO | {"parameters": 1 << 20, "weight_casts": 1 << 20}, "curve": {"index": [0, 1], "bytes": [1, 2]}},
]  # fmt: skip
FAILED = {"setting": "x", "chosen": False, "peak_bytes": None, "failed": "RuntimeError", "categories": ZERO}
CHANGES = [
    {"title": "checkpoint", "peak_bytes": 1 << 20, "saving_bytes": 2 << 20, "measured": True, "fits": True},
    {"title": "more", "peak_bytes": 4 << 20, "saving_bytes": -(1 << 20), "measured": False, "fits": False},
]


def saved(module: str, storage: int, size: int, holds: str = "saved") -> dict[str, Any]:
    return {"module": module, "storage": storage, "storage_bytes": size, "holds": holds}


def data_of(chart: Any) -> list[dict[str, Any]]:
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def test_bars_sum_to_the_peak_and_follow_the_stacking_order():
    rows = [row for row in data_of(charts.peaks_chart([*RUNS, FAILED], "light")) if "category" in row]
    assert sum(row["size"] for row in rows if row["setting"] == "fp32 (as set)") == 3.0
    assert [row["category"] for row in rows[:2]] == ["parameters", "activations"]


def test_every_category_has_a_hue_in_both_themes():
    assert set(charts.CATEGORIES) == set(LABELS)
    for theme in ("light", "dark"):
        assert set(charts.CATEGORIES.values()) <= set(MEMORY[theme])


def test_each_chart_has_an_alt_text_and_units():
    drawn = [
        charts.peaks_chart(RUNS, "dark"),
        charts.curves_chart(RUNS, "light"),
        charts.changes_chart(CHANGES, 3 << 20, 2 << 20, "light"),
        charts.saved_chart([saved("a", 1, 2048)], "dark"),
    ]
    for chart in drawn:
        spec = chart.to_dict()
        assert spec["description"]
        assert "iB)" in str(spec)


def test_over_the_limit_is_said():
    rows = {
        row["title"]: row for row in data_of(charts.changes_chart(CHANGES, 3 << 20, 2 << 20, "light")) if "title" in row
    }
    assert (rows["checkpoint"]["fits"], rows["more"]["fits"]) == ("fits", "over the limit")
    assert rows["more"]["text"] == "4.00 MiB, +33%"


def test_a_storage_saved_twice_counts_once():
    rows = charts.saved_by_module(
        [saved("a", 1, 100), saved("b", 1, 100), saved("b", 2, 50), saved("b", 3, 9, "inputs")]
    )
    assert [(row["module"], row["bytes"]) for row in rows] == [("a", 100), ("b", 50)]
    many = charts.saved_by_module([saved(f"m{i}", i, 10 + i) for i in range(25)], most=20)
    assert sum(row["bytes"] for row in many) == sum(10 + i for i in range(25))
    assert many[-1]["module"] == "5 more modules"


def test_a_planted_double_count_is_caught():
    with pytest.raises(AssertionError):
        assert sum(row["bytes"] for row in charts.saved_by_module([saved("a", 1, 100), saved("b", 1, 100)])) == 200


@pytest.mark.parametrize(("most", "unit"), [(900, "B"), (1 << 10, "KiB"), (5 << 20, "MiB"), (1 << 41, "TiB")])
def test_units(most, unit):
    assert charts.unit_of(most)[1] == unit


def test_the_scene_codes_texts_and_leaves_zero_layers_out():
    owner = {"category": "saved", "module": "fc", "op": "addmm", "name": "", "bytes": 6, "count": 1}
    peak = {"bytes": 10, "index": 0, "row": 1, "op": "addmm", "phase": "forward", "module": "fc", "step": 0,
            "categories": ZERO | {"parameters": 4, "saved": 6}, "owners": [owner]}  # fmt: skip
    zeros = {name: [0, 0] for name in LABELS}
    result = {
        "timeline": {"index": [-1, 0], "op": ["start", "addmm"], "phase": ["start", "forward"], "module": ["", "fc"],
                     "step": [0, 0], "line": [None, None], "unseen": None, **zeros, "parameters": [4, 4], "saved": [0, 6]},
        "lives": {"first": [0, 1], "end": [2, 2], "category": [0, 5], "bytes": [4, 6], "storage": [0, 1]},
        "storages": {"op": ["before the run", "addmm"], "phase": ["start", "forward"], "module": ["", "fc"],
                     "name": ["w", ""], "shape": ["[1]", "[2]"], "dtype": ["float32", "float32"], "line": [None, None]},
        "peak": peak, "step_ends": [4], "operations": 1, "saved_bytes": 6, "predicted": False,
        "fit": {"card_bytes": 100},
    }  # fmt: skip
    drawn = scene(result)
    assert [layer["name"] for layer in drawn["layers"]] == ["parameters", "saved"]
    assert [drawn["op"]["words"][at] for at in drawn["op"]["at"]] == ["start", "addmm"]
    assert "saved activations of fc 6 B" in peak_text(peak)
    assert owners_rows([owner])[0]["size"] == short(6) == "6 B"
