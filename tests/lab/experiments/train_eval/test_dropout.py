"""Dropout against the binomial distribution and closed forms; wrong dropouts are caught."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from lab.experiments.train_eval.studies import dropout_passes
from lab.experiments.train_eval.studies.binomial import LEVEL, binomial_interval
from lab.experiments.train_eval.studies.dropout_forms import FORMS, law_of
from lab.experiments.train_eval.studies.dropout_passes import read_dropout
from lab.experiments.train_eval.studies.listeners import DROPOUTS, NORMS, read_listeners
from lab.experiments.train_eval.studies.mc_dropout import read_mc_dropout
from lab.records.modes_dropout import DropoutReading

SHAPES = {2: (8, 6), 3: (8, 6, 5), 4: (8, 6, 3, 3)}


def reading(module: str = "Dropout", p: float = 0.3, passes: int = 60, seed: int = 0, **more) -> DropoutReading:
    torch.manual_seed(seed + 1000)
    x = more.pop("x", None)
    x = torch.randn(SHAPES[FORMS[module].dims]) if x is None else x
    return read_dropout(module, p, x, passes, seed, more.get("same_mask", False), lambda fraction: None)


@pytest.mark.parametrize(("trials", "p"), [(1, 0.5), (7, 0.2), (40, 0.5), (500, 0.03), (900, 0.9)])
def test_the_interval_is_the_one_of_exact_sums(trials: int, p: float) -> None:
    below, low, high = 0.0, None, trials
    for k in range(trials + 1):
        below += math.comb(trials, k) * p**k * (1 - p) ** (trials - k)
        if low is None and below > (1 - LEVEL) / 2:
            low = k
        if below > 1 - (1 - LEVEL) / 2:
            high = k
            break
    assert low is not None
    assert binomial_interval(trials, p) == (low / trials, high / trials)


@pytest.mark.parametrize("module", FORMS)
def test_the_share_lies_in_its_interval_for_nearly_all_seeds(module: str) -> None:
    outside = 0
    for seed in range(120):
        r = reading(module, seed=seed, passes=10)
        low, high = r.expected_interval
        outside += not low <= r.dropped_fraction <= high
    assert outside <= 2  # 0.12 expected; three or more have probability 3e-4


class Biased(nn.Dropout):
    """Drops 0.05 more than it says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, self.p + 0.05, self.training) * (1 - self.p - 0.05) / (1 - self.p)


class Unscaled(nn.Dropout):
    """Forgets 1/(1 − p)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1 - self.p)


def planted(monkeypatch: pytest.MonkeyPatch, wrong: type[nn.Module]) -> DropoutReading:
    forms = FORMS | {"Dropout": replace(FORMS["Dropout"], make=wrong)}
    monkeypatch.setattr(dropout_passes, "FORMS", forms)
    return reading(p=0.5, passes=400, x=torch.ones(8, 6))


def test_a_wrong_share_is_outside_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    r = planted(monkeypatch, Biased)
    assert not r.expected_interval[0] <= r.dropped_fraction <= r.expected_interval[1]


def test_a_missing_scale_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    r = planted(monkeypatch, Unscaled)
    assert r.kept_error == 1.0
    assert not r.convergence[-1].mean_low <= r.mean <= r.convergence[-1].mean_high


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("module", FORMS)
def test_mean_and_variance_come_near_the_closed_form(module: str, p: float) -> None:
    r = reading(module, p, passes=600)
    last = r.convergence[-1]
    assert last.passes == 600
    assert last.mean_low - 1e-6 <= r.mean <= last.mean_high + 1e-6
    assert r.variance == pytest.approx(r.predicted.variance, rel=0.25, abs=1e-9)
    assert r.kept_error < 1e-5
    assert r.partly_dropped == 0


@pytest.mark.parametrize("module", FORMS)
def test_the_law_is_the_sum_over_both_fates(module: str) -> None:
    """Mean and variance by enumeration: each element kept with weight 1 − p, dropped with weight p."""
    p, x = 0.3, torch.linspace(-2, 3, 11, dtype=torch.float64)
    law = law_of(module, p)
    outcomes = [(1 - p, law.a * v + law.b) for v in x.tolist()] + [(p, law.a * law.d + law.b)] * len(x)
    mean = sum(w * y for w, y in outcomes) / len(x)
    assert law.mean(x) == pytest.approx(mean, abs=1e-12)
    assert law.variance(x) == pytest.approx(sum(w * (y - mean) ** 2 for w, y in outcomes) / len(x), rel=1e-12)


def test_alpha_dropout_keeps_a_standard_normal() -> None:
    for p in (0.1, 0.5, 0.9):
        law, x = law_of("AlphaDropout", p), torch.tensor([-1.0, 1.0], dtype=torch.float64)  # mean 0, variance 1
        assert law.mean(x) == pytest.approx(0, abs=1e-12)
        assert law.variance(x) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("module", FORMS)
def test_both_ends_of_p(module: str) -> None:
    none, all_of_it = reading(module, 0.0, passes=2), reading(module, 1.0, passes=2)
    assert (none.dropped_fraction, none.expected_interval, none.kept_scale) == (0.0, (0.0, 0.0), 1.0)
    assert (all_of_it.dropped_fraction, all_of_it.mean, all_of_it.variance) == (1.0, 0.0, 0.0)


def test_eval_is_the_identity_but_for_the_function() -> None:
    gaps = {module: reading(module, passes=1).eval_gap for module in FORMS}
    assert gaps.pop("F.dropout") > 0
    assert set(gaps.values()) == {0.0}


def test_the_same_seed_gives_the_same_mask() -> None:
    fresh, again = reading(passes=20), reading(passes=20, same_mask=True)
    assert (fresh.same_masks, fresh.independent_passes) == (False, 20)
    assert (again.same_masks, again.independent_passes) == (True, 1)
    assert again.grid.first == again.grid.second


def test_a_value_next_to_zero_is_dropped_as_well() -> None:
    x = torch.ones(4, 6, 3, 3)
    x[..., 0, 0] = 1e-7
    assert reading("Dropout2d", 0.5, passes=30, x=x).partly_dropped == 0


@pytest.mark.parametrize("p", [1e-6, 0.999999])
def test_alpha_dropout_with_a_large_factor(p: float) -> None:
    r = reading("AlphaDropout", p, passes=50)
    assert r.expected_interval[0] <= r.dropped_fraction <= r.expected_interval[1]


def test_whole_units_go_together() -> None:
    r = reading("Dropout2d", 0.5, passes=30)
    assert (r.unit, r.units, r.partly_dropped) == ("plane", 48, 0)
    rows = torch.tensor(r.grid.first_dropped)  # (N·H, C·W), 3 × 3 planes
    planes = rows[:15].reshape(5, 3, 6, 3).transpose(1, 2).flatten(2)
    assert bool((planes.all(-1) == planes.any(-1)).all())


def test_the_spread_of_mc_dropout_is_its_closed_form() -> None:
    mc = read_mc_dropout(0.4, 1500, seed=3, device="cpu")
    for sample in mc.samples:
        assert sample.std == pytest.approx(sample.predicted_std, rel=0.12)
        assert sample.mean == pytest.approx(sample.eval_output, abs=5 * sample.predicted_std / math.sqrt(1500))
    assert mc.batchnorm_batches == 0
    other = read_mc_dropout(0.1, 1500, seed=3, device="cpu")  # the oracle is alive: another p is far away
    assert other.mean_std < 0.6 * mc.mean_std


def test_who_listens_to_eval() -> None:
    rows = {row.name: row for row in read_listeners(DROPOUTS | NORMS, 0.5, 0, "cpu")}
    random = {name for name, row in rows.items() if row.eval_spread > 0}
    assert random == {"F.dropout(x, p)", "F.scaled_dot_product_attention(dropout_p=p)"}
    assert {name for name, row in rows.items() if row.needs_the_batch} == {"nn.BatchNorm1d(track_running_stats=False)"}
    unchanged = {name for name, row in rows.items() if row.mode_gap == 0}
    assert unchanged == {
        *("nn.BatchNorm1d(track_running_stats=False)", "nn.InstanceNorm1d"),
        *("nn.LayerNorm", "nn.GroupNorm", "nn.RMSNorm"),
    }
    assert rows["nn.Dropout2d on (N, C, L)"].drops == "row"
    assert "3D input" in rows["nn.Dropout2d on (N, C, L)"].warning
    assert {rows[f"nn.Dropout{d}"].drops for d in ("", "1d", "2d")} == {"element", "row", "plane"}
