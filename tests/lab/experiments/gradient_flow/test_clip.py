"""Clipping in training: against the definition, the traps, and what the findings say of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lab.contract import Finding, silent
from lab.experiments.gradient_flow import Params, Result, explain, run
from lab.experiments.gradient_flow.subject import family_subject
from lab.program.run import torch_defaults

SMALL: dict[str, Any] = {"depth": 3, "width": 16, "batch": 8, "activation": "relu", "init": "kaiming", "steps": 2}


def measured(**settings: Any) -> Result:
    return run(Params(**{**SMALL, **settings}), silent)


def titles(result: Result) -> list[str]:
    return [finding.title for finding in explain(result)]


def finding(result: Result, words: str) -> Finding:
    return next(f for f in explain(result) if words in f.title)


def gradient(**settings: Any) -> torch.Tensor:
    """The first gradient of the same network, all parameters in one vector."""
    params = Params(**{**SMALL, **settings})
    with torch_defaults(params.seed, "cpu"):
        subject = family_subject(params)
        subject.loss().backward()
    return torch.cat([p.grad.flatten() for p in subject.model.parameters() if p.grad is not None]).double()


@pytest.mark.parametrize(("norm_type", "order"), [("1", 1.0), ("2", 2.0), ("inf", math.inf)])
def test_clip_grad_norm_against_the_definition(norm_type, order):
    g = gradient()
    before = torch.linalg.vector_norm(g, order).item()
    first = measured(clip="norm", norm_type=norm_type, clip_limit=0.5).clipping.steps[0]
    assert first.norm_before == pytest.approx(before, rel=1e-6)
    assert first.returned == pytest.approx(before, rel=1e-5)
    assert first.norm_after == pytest.approx(0.5, rel=1e-4)
    assert first.cosine == pytest.approx(1.0)
    assert first.norm_after != pytest.approx(before)  # alive


def test_clip_grad_value_against_the_definition():
    g, limit = gradient(), 0.02
    cut = g.clamp(-limit, limit)
    first = measured(clip="value", clip_limit=limit).clipping.steps[0]
    assert first.norm_after == pytest.approx(cut.norm().item(), rel=1e-6)
    assert first.cosine == pytest.approx((g @ cut / g.norm() / cut.norm()).item(), rel=1e-6)
    assert first.changed_share == pytest.approx((g.abs() > limit).double().mean().item(), abs=1e-3)
    assert first.returned is None


def test_one_factor_for_every_layer():
    result = measured(clip="norm", clip_limit=0.5)
    factors = [(layer.clipped_grad_norm or 0) / (layer.weight_grad_norm or 0) for layer in result.layers]
    assert factors == pytest.approx([factors[0]] * len(factors), rel=1e-5)


def test_a_limit_above_the_norm_changes_nothing():
    result = measured(clip="norm", clip_limit=1e6)
    assert result.clipping.clipped_share == 0
    assert result.loss == measured(clip="none").loss


def test_an_infinite_gradient_zeroes_the_others():
    result = measured(clip="norm", trap="inf")
    norms = [layer.clipped_grad_norm for layer in result.layers]
    assert [n == 0 for n in norms].count(True) == len(norms) - 1
    assert math.isnan(norms[1] or 0)
    assert math.isnan(result.loss[1])
    assert "One bad gradient spoils all of them" in titles(result)
    assert result.first_nonfinite_step == 1


def test_error_if_nonfinite_stops_and_says_so():
    result = measured(clip="norm", trap="nan", error_if_nonfinite=True)
    assert result.fault is not None
    assert "non-finite" in result.fault.message
    assert len(result.loss) == 1
    assert "error_if_nonfinite stopped the training" in titles(result)


def test_squares_that_overflow():
    result = measured(clip="norm", trap="overflow")
    first = result.clipping.steps[0]
    assert first.returned == math.inf
    assert first.norm_before == pytest.approx(10 * torch.finfo(torch.float32).max ** 0.5, rel=1e-6)
    assert first.norm_after == 0
    assert finding(result, "Squares overflow").change == {"norm_type": "inf"}
    assert measured(clip="norm", trap="overflow", norm_type="inf").clipping.steps[0].returned != math.inf


def test_an_exhausted_generator():
    result = measured(clip="norm", trap="generator")
    first = result.clipping.steps[0]
    assert (first.returned, first.clipped) == (0.0, False)
    assert first.norm_before == pytest.approx(gradient().norm().item(), rel=1e-6)
    assert "Nothing was clipped" in titles(result)


def test_a_negative_limit_and_a_limit_of_zero():
    result = measured(clip="norm", trap="negative", clip_limit=0.5)
    assert result.clipping.steps[0].cosine == pytest.approx(-1.0)
    assert result.clipping.limit == -0.5
    assert "The gradient points the other way" in titles(result)
    zero = measured(clip="norm", clip_limit=0.0)
    assert zero.clipping.steps[0].norm_after == 0
    assert zero.loss[0] == zero.loss[1]
    assert "A limit of 0 is not off" in titles(zero)


def test_clipping_before_unscaling():
    result = measured(clip="norm", trap="unscale")
    first, g = result.clipping.steps[0], gradient()
    assert first.norm_before == pytest.approx(g.norm().item(), rel=1e-5)
    assert first.returned == pytest.approx(65536 * g.norm().item(), rel=1e-5)
    assert first.norm_after == pytest.approx(1 / 65536, rel=1e-4)
    assert "Clipped before unscaling" in titles(result)
    # what is shown per layer is not scaled
    assert result.layers[0].weight_grad_norm == pytest.approx(measured().layers[0].weight_grad_norm, rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_clipping_hides_a_bad_learning_rate(seed):
    """N4: clipped or not, the rate does not work; a hundredth of it does, and is clipped as well."""
    settings: dict[str, Any] = {
        "depth": 8,
        "width": 64,
        "batch": 32,
        "activation": "relu",
        "init": "kaiming",
        "steps": 40,
        "seed": seed,
    }
    bad, bare, good = (
        run(Params(**settings, clip=c, lr=lr), silent) for c, lr in (("norm", 10.0), ("none", 10.0), ("norm", 0.1))
    )
    assert bad.final_loss is not None
    assert bad.final_loss > 1.0
    assert bare.first_nonfinite is not None
    assert good.final_loss is not None
    assert good.final_loss < 0.5 * good.loss[0]
    assert "Clipping hides a learning rate that does not work" in titles(bad)
    assert "Clipping hides a learning rate that does not work" not in titles(good)  # alive


def test_the_norms_of_the_layers_do_not_add_up():
    norms = measured(clip="norm").clipping.total_norms
    g = gradient()
    assert [norms["1"], norms["2"], norms["inf"]] == pytest.approx(
        [g.abs().sum().item(), g.norm().item(), g.abs().max().item()], rel=1e-5
    )
    assert norms["sum of the layers' norms"] > norms["2"]


def test_a_sum_over_the_batch_multiplies_the_norm():
    mean, total = (measured(reduction=r).clipping.total_norms["2"] for r in ("mean", "sum"))
    assert total == pytest.approx(8 * mean, rel=1e-4)
    assert "Summed loss: norms grow with the batch" in titles(measured(reduction="sum"))


def test_an_error_of_clipping_is_not_taken_for_a_nonfinite_norm():
    code = "model = nn.Embedding(4, 2, sparse=True)\nbatch = torch.tensor([1, 2])"
    result = measured(family="own", code=code, clip="norm", steps=1)
    sparse = torch.nn.Parameter(torch.ones(2, 1))
    sparse.grad = torch.ones(2, 1).to_sparse()
    try:
        torch.nn.utils.clip_grad_norm_([sparse], 1.0)
    except (RuntimeError, NotImplementedError):  # older releases have no norm of sparse gradients
        assert "clip_grad_norm_ stopped the training" in titles(result)
    else:
        assert "clip_grad_norm_ stopped the training" not in titles(result)
        assert result.fault is None


def test_norms_after_a_skipped_step_know_the_new_scale():
    """A loss that overflows only when it is scaled: the scaler skips the step and halves its scale."""
    code = (
        "model = nn.Linear(1, 1, bias=False)\nbatch = torch.ones(1, 1)\ndef loss(m, b):\n    return m(b).sum() * 1e34"
    )
    result = measured(family="own", code=code, clip="norm", trap="unscale", lr=0.0, steps=3)
    assert result.clipping.skipped_steps == 1
    assert [step.weight_grad_norm[0] for step in result.steps[1:]] == pytest.approx([1e34] * 2)
    assert [step.norm_before for step in result.clipping.steps[1:]] == pytest.approx([1e34] * 2)
