"""What is read of values and gradients against differences in float64, closed forms and counts by hand, on this host."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from lab.instruments.gradients.activation_watch import ActivationWatch
from lab.instruments.gradients.clipping import compare, total_norm
from lab.instruments.gradients.first_nonfinite import ForwardSearch, search_backward
from lab.instruments.gradients.layer_watch import LOSS, LayerWatch, owners
from lab.instruments.gradients.mean_field import moments
from lab.instruments.gradients.norms import summary, underflow_share


def _layer_gradient(device: str) -> str:
    """The gradient of a layer's output, (3, 4), against central differences of what follows the layer."""
    first, last = (
        nn.Linear(2, 4, dtype=torch.float64, device=device),
        nn.Linear(4, 1, dtype=torch.float64, device=device),
    )
    x = torch.linspace(-1, 1, 6, dtype=torch.float64, device=device).reshape(3, 2)
    with LayerWatch(owners(nn.Sequential(first, nn.Tanh(), last))) as watch:
        watch.begin()
        output = first(x)
        loss = last(output.tanh()).square().sum()
        watch.forward_done()
        loss.backward()
    seen = watch.layers[0].gradients[LOSS].read()
    by_differences, output, step = [], output.detach(), 1e-6
    with torch.no_grad():
        for at in torch.eye(output.numel(), dtype=torch.float64, device=device).view(-1, *output.shape):
            ahead, behind = (last((output + by * at).tanh()).square().sum() for by in (step, -step))
            by_differences.append(float(ahead - behind) / (2 * step))
    expected = math.hypot(*by_differences)
    assert seen, "no gradient arrived at the layer"
    assert abs(seen.norm - expected) < 1e-7 * expected, f"the norm is {seen.norm:.9g}, by differences {expected:.9g}"
    return f"norm {seen.norm:.6g}"


def _norms(device: str) -> str:
    """A thousand times 300 in float16: each square overflows there."""
    read = summary([torch.full((1000,), 300.0, dtype=torch.float16, device=device)])
    assert read
    expected = (300 * math.sqrt(1000), 300.0, 300.0, 300.0)
    seen = (read.norm, read.rms, read.mean, read.max)
    assert all(map(math.isclose, seen, expected)), f"norm, RMS, mean, largest {seen}, by hand {expected}"
    lost = underflow_share([torch.tensor([0.0, 1e-9, 1e-3, 1.0], device=device)], torch.float16)
    assert lost == 1 / 3, f"{lost} of the values become zero in float16, by hand one of three"
    return f"norm {read.norm:.6g}"


def _clipping(device: str) -> str:
    """(3, 4) and (0, 12) have the norm 13; cut at 5 they are (3, 4, 0, 5), which is turned and shorter."""
    gradients = [torch.tensor(values, device=device) for values in ((3.0, 4.0), (0.0, 12.0))]
    cut = [g.clamp(-5, 5) for g in gradients]
    norms = total_norm(gradients, 2.0), total_norm(gradients, 1.0), total_norm(gradients, math.inf)
    assert all(map(math.isclose, norms, (13, 19, 12))), f"norms {norms}, by hand 13, 19 and 12"
    seen, cosine = compare(gradients, cut), (9 + 16 + 60) / (13 * math.sqrt(50))
    assert seen.cosine is not None
    assert math.isclose(seen.cosine, cosine), f"the cosine is {seen.cosine:.9g}, by hand {cosine:.9g}"
    assert seen.changed_share == 1 / 4, f"{seen.changed_share} of the values changed, by hand one of four"
    return f"norm 13, cosine {seen.cosine:.6g}"


def _mean_field(device: str) -> str:
    """E[sin²(√q z)] = (1 − exp(−2q)) / 2 and E[cos²(√q z)] = (1 + exp(−2q)) / 2. Computed on the CPU everywhere."""
    worst = 0.0
    for q in (0.1, 1.0, 4.0):
        expected = (-math.expm1(-2 * q) / 2, (1 + math.exp(-2 * q)) / 2)
        worst = max(worst, *(abs(a - b) for a, b in zip(moments("sine", torch.sin, q), expected, strict=True)))
    assert worst < 1e-9, f"a moment differs by {worst:.1e} from its closed form"
    return f"largest difference {worst:.1e}"


def _activations(device: str) -> str:
    """A sigmoid is saturated beyond ±ln 99 = ±4.595; a unit of a ReLU is dead if it is 0 in every row."""
    with ActivationWatch(lambda: "layer") as watch:
        torch.sigmoid(torch.tensor([-9.0, -4.7, -4.5, 0.0, 4.5, 4.7, 9.0, 1.0], device=device))
    saturated = watch.found["layer"].saturated_share
    with ActivationWatch(lambda: "layer") as watch:
        torch.relu(torch.tensor([[-1.0, -1.0, 1.0, 2.0], [-1.0, 1.0, -1.0, 2.0]], device=device))
    seen = saturated, watch.found["layer"].dead_share
    assert seen == (4 / 8, 1 / 4), f"saturated and dead {seen}, by hand 4 of 8 and 1 of 4"
    return "4 of 8 saturated, 1 of 4 dead"


def _first_nonfinite(device: str) -> str:
    """exp(100) is infinite in float32; √ has a finite value at 0, and an infinite slope."""
    with ForwardSearch(lambda: "layer") as search:
        (torch.tensor([100.0], device=device).exp() * 0).sum()
    forward = search.found and (search.found.operation, search.found.value)
    assert forward == ("exp", "infinity"), f"found {search.found}, by hand exp"
    x = torch.zeros(1, requires_grad=True, device=device)
    backward = search_backward((x.sqrt() * 2).sum(), {})
    assert backward, "the infinite slope of the root was not found"
    assert backward.operation == "backward of sqrt", f"found {backward}, by hand the backward of sqrt"
    return "exp forward, sqrt backward"


ORACLES: dict[str, Callable[[str], str]] = {
    "layer watch: a gradient against differences": _layer_gradient,
    "norms: closed form in half precision": _norms,
    "clipping: norms and angle by hand": _clipping,
    "mean-field theory: closed form of the sine": _mean_field,
    "activations: saturated and dead by hand": _activations,
    "first value that is not finite: by hand": _first_nonfinite,
}
"""Name -> the check on a device: what it saw, or AssertionError."""
