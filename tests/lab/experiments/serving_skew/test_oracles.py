"""The planted departure is the oracle: its stage is known. A planted error in the comparison must be noticed."""

from __future__ import annotations

import math

import pytest
import torch

from lab.contract import silent
from lab.experiments.serving_skew import Params, comparing, explain, run
from lab.workloads.serving_paths import COLUMNS, SKEWS, rows, served_path, trained_path

CAUSES = {
    "feature order": ("features", {"age", "income"}), "missing feature read as 0": ("features", {"visits"}),
    "not normalised": ("normalisation", None), "statistics of the serving batch": ("normalisation", None),
    "biased for unbiased std": ("normalisation", None), "constants through float16": ("normalisation", None),
    "bfloat16": ("dtype", {"bfloat16"}), "train mode": ("mode", {"bn"}), "only dropout left on": ("mode", {"drop"}),
    "only BatchNorm left in train": ("mode", {"bn"}), "running statistics not loaded": ("buffers", None),
    "head not loaded": ("weights", {"fc2.weight", "fc2.bias"}), "old checkpoint": ("weights", {"fc1.weight"}),
    "int8 weights": ("weights", {"fc1.weight"}), "sigmoid for softmax": ("postprocessing", None),
    "temperature 2": ("postprocessing", None), "labels permuted": ("labels", None),
}  # fmt: skip


@pytest.mark.parametrize("skew", SKEWS)
def test_a_departure_is_found_at_its_stage_with_its_cause(skew: str):
    result = run(Params(skew=skew), silent)
    assert result.first == SKEWS[skew].stage
    if not result.first:
        assert result.cause is None
        assert [finding.level for finding in explain(result)] == ["fact"]
        return
    kind, names = CAUSES[skew]
    assert result.cause is not None
    assert result.cause.kind == kind
    assert names in (None, set(result.cause.names))
    at = [stage.name for stage in result.stages].index(result.first)
    assert all(stage.equal and stage.gap == 0.0 for stage in result.stages[:at])
    assert explain(result)[0].title == f"The paths part at {result.first}"


def test_stages_that_are_swapped_are_no_agreement():
    golden = rows(16, 1)
    path = trained_path()
    stages = path.run(golden)
    assert not comparing.first_of(comparing.compare(stages, path.run(golden), None, 0.0))
    swapped = {**stages, "logits": stages["module fc1"], "module fc1": stages["logits"]}
    assert comparing.first_of(comparing.compare(stages, swapped, None, 1e-5)) == "module fc1"


def test_a_gap_is_what_a_loop_computes():
    a = torch.tensor([[1.0, 100.0], [3.0, 300.0], [5.0, 200.0]])
    b = a.clone()
    b[1, 0] += 0.5
    flat = [x for row in a.tolist() for x in row]
    mean = sum(flat) / 6
    std = math.sqrt(sum((x - mean) ** 2 for x in flat) / 5)
    assert comparing.gap_of(a, b, by_column=False)[0] == pytest.approx(0.5 / std)
    assert comparing.gap_of(a, b, by_column=True)[0] == pytest.approx(0.5 / 2.0)  # the column 1, 3, 5 has std 2
    assert comparing.gap_of(["a", "b", "c", "d"], ["a", "x", "c", "y"], by_column=False) == (0.5, 0.0)
    assert comparing.gap_of(a, a[:2], by_column=False)[0] == math.inf
    nan = a.clone()
    nan[0, 0] = math.nan
    assert comparing.gap_of(a, nan, by_column=False)[0] == math.inf
    assert comparing.gap_of(nan, nan.clone(), by_column=False)[0] == 0.0
    assert comparing.gap_of(torch.tensor([1, 2]), torch.tensor([1, 3]), by_column=False) == (0.5, 0.0)


def test_a_small_column_is_not_hidden_by_a_large_one():
    golden = rows(64, 1)
    train, serve = trained_path().run(golden), served_path("missing feature read as 0").run(golden)
    a, b = train["features"], serve["features"]
    assert isinstance(a, torch.Tensor)
    assert isinstance(b, torch.Tensor)
    assert float((a - b).abs().max() / a.std()) < 0.001
    assert {c.name: c.gap > 1 for c in comparing.columns_of(train, serve, COLUMNS)} == {
        "age": False,
        "income": False,
        "clicks": False,
        "visits": True,
    }


def test_weights_and_modes_are_read_before_anything_runs():
    """A forward in train mode changes running statistics: read afterwards, the table would accuse them."""
    result = run(Params(skew="train mode"), silent)
    assert result.weights_differ == ()
    path, served = trained_path(), served_path("train mode")
    served.run(rows(8, 1))
    assert comparing.weights_that_differ(path.model, served.model)


def test_the_power_of_a_golden_set():
    result = run(Params(view="power"), silent)
    planted = [p for p in result.power if p.skew not in ("none", "batches of one")]
    assert not any(p.shown for p in result.power if p.skew in ("none", "batches of one"))
    assert sum(p.shown for p in planted if p.rows == 64) == 17
    assert sum(p.labels > 0 for p in planted if p.rows == 64) == 10
    blind = run(Params(view="power", golden="all zeros"), silent)
    hidden = {p.skew for p in blind.power if p.rows == 64 and not p.shown}
    assert {"feature order", "missing feature read as 0"} < hidden
    assert any("These rows cannot show" in finding.title for finding in explain(blind))


def test_drift_is_no_skew():
    result = run(Params(view="drift", skew="none"), silent)
    assert not result.first
    live = torch.tensor([row["age"] for row in rows(256, 8, age_shift=25.0)])
    trained = torch.tensor([row["age"] for row in rows(512, 5)])
    by_hand = (live.mean() - trained.mean()) / trained.std()
    assert result.drift[0].shift_std == pytest.approx(float(by_hand), rel=1e-5)
    assert "no skew" in explain(result)[0].text
    assert [f.title for f in explain(run(Params(view="drift", skew="none", age_shift=0.0), silent))] == [
        "Neither skew nor drift"
    ]


def test_a_single_row_in_train_mode_is_refused_and_said():
    result = run(Params(skew="train mode", golden_rows=1), silent)
    assert "more than 1 value per channel" in result.refused
    assert explain(result)[0].level == "fault"


def test_generators_stay_as_they_were():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for view in ("stages", "power", "drift"):
        run(Params(view=view), silent)
    assert torch.equal(before, torch.get_rng_state())
