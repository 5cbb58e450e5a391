"""Norms over depth: exact cases, a hand-computed product, finite differences, and the theory over many seeds."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from lab.contract import ParamsError, knobs, silent
from lab.experiments import gradient_flow
from lab.experiments.gradient_flow import Params, Result, run
from lab.experiments.gradient_flow.prediction import ratio, slope
from lab.experiments.gradient_flow.subject import family_subject
from lab.program.run import torch_defaults
from lab.wire import decode, dumps, loads


def measured(**settings: Any) -> Result:
    return run(Params(**{"steps": 1, **settings}), silent)


def built(params: Params) -> Any:
    """The same network again: the seed decides it."""
    with torch_defaults(params.seed, "cpu"):
        return family_subject(params)


@pytest.mark.parametrize("gain", [1.0, 0.5])
def test_an_orthogonal_linear_network_keeps_the_norm_exactly(gain):
    result = measured(activation="identity", init="orthogonal", gain=gain, dtype="float64", depth=20, width=32)
    assert result.headline.activation_grad_ratio == pytest.approx(gain**19, rel=1e-12)
    assert result.headline.decades_per_layer == pytest.approx(math.log10(gain), abs=1e-12)
    assert result.prediction.decades_per_layer == pytest.approx(math.log10(gain), abs=1e-12)


def test_a_three_layer_product_by_hand():
    params = Params(depth=3, width=4, batch=2, activation="identity", loss="random", steps=1, dtype="float64")
    result, model = run(params, silent), built(params).model
    w = [layer.linear.weight.detach() for layer in model.layers] + [model.head.weight.detach()]
    top = result.layers[2].activation_grad_norm
    assert top is not None
    # linear layers: dL/dh1 = dL/dh3 · W3 · W2
    g3 = _gradient_at(params, 2)
    assert g3.norm().item() == pytest.approx(top)
    assert (g3 @ w[2] @ w[1]).norm().item() == pytest.approx(result.layers[0].activation_grad_norm)
    assert (g3 @ w[2].T @ w[1]).norm().item() != pytest.approx(result.layers[0].activation_grad_norm)  # alive


def _gradient_at(params: Params, index: int) -> torch.Tensor:
    subject = built(params)
    kept: list[torch.Tensor] = []
    subject.inner[index].module.register_forward_hook(lambda module, inputs, output: kept.append(output))
    return torch.autograd.grad(subject.loss(), kept)[0]


def test_weight_gradients_against_finite_differences():
    params = Params(depth=3, width=3, batch=4, activation="tanh", dtype="float64", steps=1)
    result, subject, h = run(params, silent), built(params), 1e-6
    for layer, watched in zip(result.layers, subject.layers, strict=True):
        weight, differences = watched.weights()[0], []
        with torch.no_grad():
            for i in range(weight.numel()):
                flat = weight.view(-1)
                flat[i] += h
                above = subject.loss().item()
                flat[i] -= 2 * h
                below = subject.loss().item()
                flat[i] += h
                differences.append((above - below) / (2 * h))
        found = torch.tensor(differences)
        assert layer.weight_grad_norm == pytest.approx(found.norm().item(), rel=1e-6)
        assert layer.weight_grad_mean == pytest.approx(found.mean().item(), rel=1e-5, abs=1e-8)
        assert layer.weight_grad_max == pytest.approx(found.abs().max().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("activation", "init"),
    [("tanh", "default"), ("sigmoid", "default"), ("relu", "kaiming"), ("identity", "xavier"), ("selu", "xavier")],
)  # fmt: skip
def test_the_fitted_slope_meets_the_predicted_one_over_many_seeds(activation, init):
    """Every network within the printed tolerance, their mean within half of it."""
    settings = {"activation": activation, "init": init, "depth": 20, "width": 128, "batch": 16}
    gaps, tolerance = [], 0.0
    for seed in range(8):
        found = measured(seed=seed, **settings).prediction
        assert found.decades_per_layer is not None
        assert found.measured_decades_per_layer is not None
        tolerance = found.tolerance or 0.0
        gaps.append(found.measured_decades_per_layer - found.decades_per_layer)
    assert max(map(abs, gaps)) < tolerance
    assert abs(statistics.mean(gaps)) < tolerance / 2
    # alive: weights half too large leave the tolerance
    shifted = measured(gain=1.5, **settings).prediction.measured_decades_per_layer
    assert shifted is not None
    assert abs(shifted - (found.decades_per_layer or 0)) > tolerance


def test_the_tolerance_grows_with_depth_over_width():
    narrow, wide = (measured(depth=20, width=w, batch=8).prediction.tolerance for w in (32, 128))
    assert narrow is not None
    assert wide is not None
    assert narrow / wide == pytest.approx(2.0)


def test_no_closed_form_is_said():
    for settings in ({"family": "rnn"}, {"norm": "layer"}, {"residual": True}, {"gain": 0.0}):
        found = measured(depth=3, width=8, batch=4, **settings).prediction
        assert not found.closed_form
        assert found.reason.startswith("No closed form")
        assert found.chi is None


def test_the_update_ratio_is_that_of_the_parameters_before_and_after():
    params = Params(depth=2, width=8, batch=4, lr=0.25, steps=1)
    result, subject = run(params, silent), built(params)
    subject.loss().backward()
    for layer, watched in zip(result.layers, subject.layers, strict=True):
        weight = watched.weights()[0]
        assert weight.grad is not None
        before = weight.detach().clone()
        after = before - 0.25 * weight.grad
        assert layer.update_ratio == pytest.approx(((after - before).norm() / before.norm()).item(), rel=1e-5)


def test_the_steps_of_an_rnn_add_up_to_the_gradient_of_the_shared_weight():
    params = Params(family="rnn", depth=6, width=8, batch=4, steps=1, dtype="float64")
    result, subject = run(params, silent), built(params)
    subject.loss().backward()
    parts = [layer.module.alias.grad for layer in subject.inner]
    shared = subject.model.cell.recurrent.weight.grad
    torch.testing.assert_close(sum(parts), shared)
    assert [layer.weight_grad_norm for layer in result.layers if layer.inner] == pytest.approx(
        [p.norm().item() for p in parts]
    )
    # tied once: the total norm holds the sum, not the parts
    everything = torch.cat([p.grad.flatten() for p in subject.model.parameters()])
    assert result.clipping.total_norms["2"] == pytest.approx(everything.norm().item())
    assert result.tied


@pytest.mark.parametrize("family", ["mlp", "rnn", "transformer"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_every_family_in_every_dtype(family, dtype):
    result = measured(family=family, dtype=dtype, depth=3, width=8, batch=4, steps=2)
    zero = [layer.name for layer in result.layers if not layer.weight_grad_norm]
    assert zero == (["step 1"] if family == "rnn" else [])  # its state is zero
    assert [layer.name for layer in result.layers][-1] == "head"
    assert decode(Result, loads(dumps(result))) == result
    assert len(result.loss) == 2
    assert all(len(step.update_ratio) == len(result.layers) for step in result.steps)


def test_a_gradient_below_the_dtype_is_zero_and_said():
    result = measured(activation="sigmoid", depth=70, width=16, batch=4)
    first = result.layers[0]
    assert first.weight_grad_norm == 0
    assert first.why_none.startswith("zero")
    assert result.prediction.decades_per_layer == pytest.approx(-0.85, abs=0.02)


def test_dropout_free_families_train():
    result = measured(depth=3, width=32, batch=16, activation="relu", init="kaiming", steps=30)
    assert result.final_loss is not None
    assert result.final_loss < 0.5 * result.loss[0]


def test_the_first_nonfinite_value_has_its_step_layer_and_operation():
    result = measured(depth=8, activation="relu", init="kaiming", lr=10.0, steps=5)
    found = result.first_nonfinite
    assert found is not None
    assert (found.pass_name, found.operation) == ("forward", "linear")
    step = result.first_nonfinite_step or 0
    assert math.isfinite(result.loss[step - 2])
    assert not math.isfinite(result.loss[step - 1])


def test_slope_and_ratio_of_a_known_line():
    line = [10.0 ** (-0.5 * (19 - i)) for i in range(20)]
    assert slope(line) == pytest.approx(-0.5)
    assert slope([0.0, math.nan, None, 1.0]) is None
    assert ratio(line) == pytest.approx(10**-9.5)
    assert ratio([1.0, 0.0]) == math.inf
    assert ratio([None, 1.0]) is None
    assert slope([*line[:10], *[7 * v for v in line[10:]]]) != pytest.approx(-0.5, abs=0.01)  # alive


def test_knobs_and_limits():
    names = set(knobs(Params))
    issue = "family depth width batch activation init gain norm norm_position residual loss dtype optimizer lr steps clip clip_limit norm_type seed device"
    assert set(issue.split()) <= names
    with pytest.raises(ParamsError, match="clip_limit = -1"):
        Params(clip_limit=-1.0)
    with pytest.raises(ParamsError, match="weights; the limit is"):
        Params(depth=200, width=1024)
    with pytest.raises(ParamsError, match="multiplications"):
        Params(depth=100, width=512, batch=1024, steps=200)
    with pytest.raises(ParamsError, match="GradScaler"):
        Params(trap="unscale", dtype="float16")


def test_a_cancelled_run_stops():
    class StopError(BaseException): ...

    def report(fraction: float, line: str, part: object = None) -> None:
        if "step 3" in line:
            raise StopError

    with pytest.raises(StopError):
        run(Params(depth=2, width=4, batch=4), report)


def test_the_same_seed_gives_the_same_numbers():
    a, b = (measured(depth=4, width=8, batch=4, steps=3, seed=5) for _ in range(2))
    assert replace(a, instrument_s=None) == replace(b, instrument_s=None)
    assert isinstance(built(Params(depth=1)).model, nn.Module)
    assert gradient_flow.__doc__.startswith("Where does the gradient go?")  # pyright: ignore[reportOptionalMemberAccess]
