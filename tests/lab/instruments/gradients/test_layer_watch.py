"""What passes through a layer, against finite differences and by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from lab.instruments.gradients.activation_watch import ActivationWatch
from lab.instruments.gradients.layer_watch import LOSS, LayerWatch, Watched, owners


def watched(
    model: nn.Module, x: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor] = lambda y: y.square().sum()
) -> dict[str, Watched]:
    with LayerWatch(owners(model)) as watch:
        watch.begin()
        value = loss(model(x))
        watch.forward_done()
        value.backward()
    return {layer.name: layer for layer in watch.layers}


def gradient_norm(layer: Watched) -> float:
    found = layer.gradients[LOSS].read()
    assert found is not None
    return found.norm


def test_the_gradient_of_an_output_against_finite_differences():
    torch.manual_seed(0)
    first, second = nn.Linear(3, 4, dtype=torch.float64), nn.Linear(4, 2, dtype=torch.float64)
    x = torch.randn(5, 3, dtype=torch.float64)
    found = gradient_norm(watched(nn.Sequential(first, nn.Tanh(), second), x)["0"])
    output, h = first(x).detach(), 1e-6

    def loss(at: torch.Tensor) -> float:
        return second(torch.tanh(at)).square().sum().item()

    differences = []
    for i in range(output.numel()):
        step = torch.zeros_like(output)
        step.view(-1)[i] = h
        differences.append((loss(output + step) - loss(output - step)) / (2 * h))
    assert found == pytest.approx(torch.tensor(differences).norm().item(), rel=1e-6)
    assert found != pytest.approx(torch.tensor(differences[1:]).norm().item(), rel=1e-6)  # alive


def test_a_module_that_runs_twice_is_summed_up_once():
    layer = nn.Linear(2, 2, bias=False)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x))

    seen = watched(Twice(), torch.ones(1, 2))["layer"]
    inner = layer(torch.ones(1, 2))
    outer = layer(inner)
    assert seen.calls == 2
    out = seen.activation.read()
    assert out is not None
    assert out.norm == pytest.approx(torch.cat([inner, outer]).norm().item())


def test_an_output_is_read_before_it_is_overwritten():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    with torch.no_grad():
        weight, bias = model.parameters()
        weight.copy_(-torch.eye(2))
        bias.zero_()
    out = watched(model, torch.ones(1, 2))["0"].activation.read()
    assert out is not None
    assert out.norm == pytest.approx(2**0.5)  # the ReLU would leave 0


def test_a_frozen_layer_and_an_unused_one_have_no_gradient():
    model = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)})
    model["a"].requires_grad_(False)
    with LayerWatch(owners(model)) as watch:
        watch.begin()
        model["a"](torch.ones(1, 1))
        watch.forward_done()
    a, b = watch.layers
    assert (a.calls, b.calls) == (1, 0)
    assert not a.gradients


@pytest.mark.parametrize("call", [torch.sigmoid, nn.Sigmoid(), nn.functional.sigmoid])
def test_saturation_is_counted_however_sigmoid_is_called(call):
    watch = ActivationWatch(lambda: "layer")
    with watch:
        call(torch.tensor([-6.0, -4.0, 0.0, 6.0]))  # sigmoid(-4) = 0.018, sigmoid(±6) within 0.0025 of a bound
    assert watch.found["layer"].saturated_share == 0.5
    assert watch.found["layer"].dead_share is None


def test_a_unit_is_dead_when_the_whole_batch_is_zero():
    watch = ActivationWatch(lambda: "layer")
    with watch:
        nn.functional.relu(torch.tensor([[-1.0, 1.0, -1.0], [-1.0, -1.0, 2.0]]))
    assert watch.found["layer"].dead_share == pytest.approx(1 / 3)
    assert watch.found["layer"].saturated_share is None
    with watch:
        nn.functional.relu(-torch.ones(2, 3, 4, 4))  # channels are the units of an image
    assert watch.found["layer"].units == 6


@pytest.mark.parametrize("arguments", [(-2.0, 3.0), {"min_val": -2.0, "max_val": 3.0}])
def test_inputs_on_a_bound_of_hardtanh(arguments):
    watch, x = ActivationWatch(lambda: "layer"), torch.tensor([3.0, 2.9, -2.0])
    with watch:
        if isinstance(arguments, dict):
            nn.functional.hardtanh(x, **arguments)
        else:
            nn.functional.hardtanh(x, *arguments)
    assert watch.found["layer"].at_bound == 2
