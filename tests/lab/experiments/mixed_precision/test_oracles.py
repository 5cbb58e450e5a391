"""Rounding of our own, closed forms, a scaler of ten lines: each against the measurement, each with a planted error."""

from __future__ import annotations

import math

import pytest
import torch

from lab.contract import silent
from lab.experiments.mixed_precision import Params, explain, lessons, run
from lab.experiments.mixed_precision.formats import TYPES, exponents, gradients_of, lost, measured_formats
from lab.experiments.mixed_precision.scaling import scaler_steps
from lab.experiments.mixed_precision.updates import spacing, stochastically_rounded

POINTS = {
    "fp16 without a scale": "loses 59.0% of the gradients", "fp16 with the usual scale": "loses 12.2% of the gradients",
    "the same in bf16": "loses 0.1% of the gradients", "the largest scale": "infinite gradients", "eight bits with one scale": "loses 12.2%",
    "one bad batch": "1 of 20 steps were skipped", "a NaN in every step": "200 of 200 steps were skipped", "clip, then unscale": "clipped while they were scaled",
    "small steps in bf16": "6.4% of the bf16 weights move", "softmax of a bf16 input": "in bfloat16", "edited inside autocast": "old cast was used",
    "a mask in fp16": "overflowed float16",
}  # fmt: skip


def rounded(value: float, digits: int, smallest: int, largest: float) -> float:
    """Nearest number with ``digits`` bits after the leading one, ties to even, steps no finer than 2^smallest."""
    if value == 0:
        return 0.0
    step = max(math.floor(math.log2(abs(value))) - digits, smallest)
    units = value / 2.0**step
    whole = math.floor(units)
    up = units - whole > 0.5 or (units - whole == 0.5 and whole % 2 == 1)
    result = (whole + up) * 2.0**step
    return result if abs(result) <= largest else math.copysign(math.inf, value)


def truncated(value: float, digits: int, smallest: int, largest: float) -> float:
    """The planted error: digits are cut off."""
    step = max(math.floor(math.log2(abs(value))) - digits, smallest)
    return math.trunc(value / 2.0**step) * 2.0**step


@pytest.mark.parametrize(
    ("name", "digits", "smallest", "largest"), [("fp16", 10, -24, 65504.0), ("bf16", 7, -133, 3.3895313892515355e38)]
)
def test_rounding_is_what_arithmetic_on_exponents_says(name: str, digits: int, smallest: int, largest: float):
    own = torch.Generator().manual_seed(3)
    values = (
        torch.randn(3000, generator=own, dtype=torch.float64) * 2.0 ** torch.randint(-30, 16, (3000,), generator=own)
    ).tolist()
    stored = torch.tensor(values, dtype=torch.float64).to(TYPES[name]).double().tolist()
    assert stored == [rounded(v, digits, smallest, largest) for v in values]
    assert stored != [truncated(v, digits, smallest, largest) for v in values]


def test_formats_are_measured_as_torch_documents_them():
    for found in measured_formats():
        told = torch.finfo(TYPES[found.name])
        assert found.largest == told.max
        assert found.smallest_normal == told.smallest_normal
        assert found.smallest == told.smallest_normal * 2.0 ** -round(-math.log2(told.eps))
        assert found.lost_integer == round(2 / told.eps) + 1


@pytest.mark.parametrize("scale", [1.0, 2.0**10, 2.0**16])
def test_what_becomes_zero_is_a_closed_form(scale: float):
    _, layers = gradients_of(12, "sigmoid")
    values = torch.cat([g for _, g in layers])
    below = float((values[values != 0].abs().double() * scale <= 2.0**-25).double().mean())
    assert lost(values, "fp16", scale)[0] == below
    assert lost(values, "fp16", scale)[0] != float((values.abs().double() * scale <= 2.0**-24).double().mean())


def test_the_histogram_counts_every_gradient_once():
    _, layers = gradients_of(4, "relu")
    histogram, total, zeros = exponents(layers)
    assert sum(histogram.count) + zeros == total == sum(g.numel() for _, g in layers)
    by_hand = sorted({math.floor(math.log2(abs(v))) for v in layers[-1][1].tolist() if v})
    shown = sorted(e for e, layer in zip(histogram.exponent, histogram.layer, strict=True) if layer == "head")
    assert shown == by_hand


def scales_by_hand(skips: list[bool], first: float, interval: int) -> list[float]:
    """Growth and backoff in ten lines."""
    scale, good, found = first, 0, []
    for skipped in skips:
        found.append(scale)
        if skipped:
            scale, good = scale * 0.5, 0
        else:
            good += 1
            if good == interval:
                scale, good = scale * 2, 0
    return found


@pytest.mark.parametrize(
    "known", [{"init_scale": 2.0**30, "steps": 40}, {"init_scale": 2.0**16, "bad_step": 7, "steps": 30}]
)
def test_the_scale_follows_from_the_skips(known: dict[str, float]):
    steps = list(scaler_steps(Params(view="scaler", growth_interval=5, **known)))  # type: ignore[arg-type]
    skips, scales = [s.skipped for s in steps], [s.scale for s in steps]
    assert any(skips)
    assert scales == scales_by_hand(skips, steps[0].scale, 5)
    assert scales != scales_by_hand(skips, steps[0].scale, 6)
    assert all(step.first and step.cause == "inf" for step in steps if step.skipped)


def test_no_step_runs_while_it_is_skipped():
    """The hook says so; the weights say the same: the loss of the step after a skip is that of the step itself."""
    steps = list(scaler_steps(Params(view="scaler", init_scale=2.0**30, steps=12)))
    assert [s.skipped for s in steps[:9]] == [True] * 9
    assert len({s.loss for s in steps[:10]}) == 1
    assert steps[10].loss != steps[9].loss


def test_lost_updates_follow_the_distance_rule():
    rows = {(row.dtype, row.lr): row for row in run(Params(view="updates"), silent).moved}
    for (dtype, _), row in rows.items():
        if dtype == "bf16":
            assert row.moved == pytest.approx(row.predicted, abs=0.005)
    assert (
        rows["fp16", 1e-5].moved > rows["fp16", 1e-5].predicted + 0.2
    )  # Adam's second moment is 0 there: larger steps
    assert spacing(torch.tensor([1.0, 2.0, 3.0])).tolist() == [2.0**-23, 2.0**-22, 2.0**-22]
    values = torch.full((20_000,), 1 + 2.0**-9)
    torch.manual_seed(0)
    mean = float(stochastically_rounded(values).float().mean())
    assert mean == pytest.approx(1 + 2.0**-9, abs=2e-4)
    assert float(values.bfloat16().float().mean()) == 1.0


@pytest.mark.parametrize("lesson", lessons, ids=lambda lesson: lesson.title)
def test_the_first_finding_of_a_lesson_is_its_point(lesson):
    assert POINTS[lesson.title] in explain(run(lesson.params, silent))[0].title


def test_global_state_is_put_back():
    torch.manual_seed(1)
    before = torch.get_rng_state(), torch.is_autocast_enabled("cpu")
    for view in ("window", "scaler", "updates", "matmul"):
        run(Params(view=view, steps=10), silent)
    assert torch.equal(before[0], torch.get_rng_state())
    assert torch.is_autocast_enabled("cpu") == before[1]
