"""What the memory charts are drawn from: exact sums, units, words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from components.kit.palette import MEMORY
from components.memory_timeline.charts import memory as charts
from components.memory_timeline.figures import owners_rows
from components.memory_timeline.timeline.scene import peak_text, scene
from lab.contract import silent
from lab.experiments import memory_timeline
from lab.quantities import short_bytes_text
from lab.records.memory import (
    CATEGORIES,
    CATEGORY_TEXTS,
    Change,
    Curve,
    Lives,
    Owner,
    Peak,
    Run,
    SavedTensor,
    Storages,
    Timeline,
)

ZERO = dict.fromkeys(CATEGORIES, 0)


def run(setting: str, peak_bytes: int | None, phase: str, chosen: bool = False, **categories: int) -> Run:
    curve = Curve((0, 1), (1, peak_bytes or 0))
    return Run(
        setting, {}, False, chosen, False, peak_bytes, phase, "", "", ZERO | categories, 0, 0, 0, 0, 0, None, curve, ""
    )


RUNS = [
    run("fp32", 3 << 20, "backward", chosen=True, parameters=1 << 20, saved=2 << 20),
    run("bf16 autocast", 2 << 20, "optimizer", parameters=1 << 20, weight_casts=1 << 20),
]
FAILED = replace(run("x", None, ""), failed="RuntimeError")
CHANGES = [
    Change("checkpoint", {}, 1 << 20, 2 << 20, measured=True, fits=True),
    Change("more", {}, 4 << 20, -(1 << 20), measured=False, fits=False),
]


def saved(module: str, storage: int, size: int, holds: str = "saved") -> SavedTensor:
    return SavedTensor("AddmmBackward0", "self", module, (size,), "uint8", size, size, storage, holds, kept=True)


def data_of(chart: Any) -> list[dict[str, Any]]:
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def test_bars_sum_to_the_peak_and_follow_the_stacking_order():
    rows = [row for row in data_of(charts.peaks_chart(charts.peaks_of([*RUNS, FAILED]), "light")) if "category" in row]
    assert sum(row["size"] for row in rows if row["setting"] == "fp32 (as set)") == 3.0
    assert [row["category"] for row in rows[:2]] == ["parameters", "activations"]


def test_every_category_has_a_hue_in_both_themes():
    assert set(charts.HUES) == set(CATEGORY_TEXTS)
    for theme in ("light", "dark"):
        assert set(charts.HUES.values()) <= set(MEMORY[theme])


def test_each_chart_has_an_alt_text_and_units():
    drawn = [
        charts.peaks_chart(charts.peaks_of(RUNS), "dark"),
        charts.curves_chart(charts.curves_of(RUNS), "light"),
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
    owner = Owner("saved", "fc", "addmm", "", 6, 1)
    peak = Peak(10, 0, 1, "addmm", "forward", "fc", 0, ZERO | {"parameters": 4, "saved": 6}, (owner,))
    sizes: dict[str, Any] = dict.fromkeys(CATEGORIES, (0, 0)) | {"parameters": (4, 4), "saved": (0, 6)}
    result = replace(
        memory_timeline.run(memory_timeline.Params(model="own", code=""), silent),
        timeline=Timeline((-1, 0), ("start", "addmm"), ("start", "forward"), ("", "fc"), (0, 0), (None, None), **sizes),
        lives=Lives((0, 1), (2, 2), (0, 5), (4, 6), (0, 1)),
        storages=Storages(
            *(("before the run", "addmm"), ("start", "forward"), ("", "fc"), ("w", "")),
            *(("[1]", "[2]"), ("float32", "float32"), (None, None)),
        ),
        peak=peak,
        step_ends=(4,),
        operations=1,
        saved_bytes=6,
    )
    drawn = scene(result)
    assert [layer["name"] for layer in drawn["layers"]] == ["parameters", "saved"]
    assert [drawn["op"]["words"][at] for at in drawn["op"]["at"]] == ["start", "addmm"]
    assert "saved activations of fc 6 B" in peak_text(peak)
    assert owners_rows([owner])[0]["size"] == short_bytes_text(6) == "6 B"
