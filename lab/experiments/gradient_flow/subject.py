"""What is measured: a network of one of the families, or the model that a visitor's program defines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from lab.experiments.gradient_flow.schema import Params
from lab.instruments.gradients.layer_watch import LayerWatch, Watched, blocks, owners
from lab.program import run as program
from lab.program.trained import model_of
from lab.records.program import SILENT, Said
from lab.workloads.deep_networks import (
    CLASSES,
    FAMILIES,
    RNN,
    RecurrentStep,
    classification_batch,
    initialise,
    input_shape,
)

MOST_LAYERS = 400


@dataclass
class Subject:
    """A model with its loss, and the layers to watch."""

    model: nn.Module
    loss: Callable[[], torch.Tensor]
    loss_name: str
    layers: list[Watched]
    inner: list[Watched]
    """The layers over which depth is compared, first to last; empty until the model has run, for a visitor's model."""
    batch_size: int | None
    input_square: float | None = None
    """Mean square of the inputs."""
    tied: bool = False
    layers_cut: int = 0
    said: Said = SILENT

    def ordered(self, watch: LayerWatch) -> list[Watched]:
        """The layers as they ran; those that did not run last."""
        if self.inner:
            return self.layers
        return sorted(
            self.layers, key=lambda layer: watch.order.index(layer) if layer in watch.order else len(watch.order)
        )


def family_subject(params: Params) -> Subject:
    """The family's network in ``params.dtype`` on the default device. Draws from torch's generator: data first."""
    shape = input_shape(params.family, params.depth, params.width, params.batch)
    x, target = classification_batch(shape)
    model = FAMILIES[params.family](
        depth=params.depth,
        width=params.width,
        activation=params.activation,
        norm=params.norm_used,
        norm_position=params.norm_position,
        residual=params.residual_used,
    )
    dtype = getattr(torch, params.dtype)
    model = model.to(torch.promote_types(dtype, torch.float32))  # orthogonal to the last digit of float64; none in half
    for linear in model.modules():
        if isinstance(linear, nn.Linear):
            initialise(linear, params.init, params.gain)
    model, x = model.to(dtype), x.to(dtype)
    rule = loss_rule(params, target, dtype)
    word = {"mlp": "layer", "rnn": "step", "transformer": "block"}[params.family]
    layers = blocks([(f"{word} {i}", module) for i, module in enumerate(model.layers, 1)])
    inner = list(layers)
    if isinstance(model, RNN):
        for layer in layers:
            _follow_step(layer)
        layers = blocks([("input", model.cell.input)]) + layers
    layers += blocks([("head", model.head)])
    names = {"cross_entropy": "cross-entropy", "mse": "mean squared error", "random": "random cotangent"}
    return Subject(
        model,
        lambda: rule(model(x)),
        names[params.loss],
        layers,
        inner,
        params.batch,
        float(x.double().square().mean()),
        tied=params.family == "rnn",
    )


def _follow_step(layer: Watched) -> None:
    """The gradient of a time step is what it adds to the shared weight's."""
    step = layer.module
    assert isinstance(step, RecurrentStep)
    layer.weights = lambda: [] if step.alias is None else [step.alias]
    layer.stored = lambda: [step.cell.recurrent.weight]
    layer.biases = list


def loss_rule(params: Params, target: torch.Tensor, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """Output (B, classes) -> scalar."""
    if params.loss == "cross_entropy":
        return lambda output: F.cross_entropy(output, target, reduction=params.reduction)
    if params.loss == "mse":
        wanted = F.one_hot(target, CLASSES).to(dtype)
        return lambda output: F.mse_loss(output, wanted, reduction=params.reduction)
    cotangent = torch.randn(len(target), CLASSES).to(dtype)
    divisor = len(target) if params.reduction == "mean" else 1
    return lambda output: (output * cotangent).sum() / divisor


def own_subject(ran: program.Ran) -> Subject:
    """The model of a visitor's program. Raises OwnModelError, and whatever classes of the program raise."""
    own = model_of(ran)
    layers = owners(own.model)
    sizes = [len(t) for t in own.inputs if isinstance(t, torch.Tensor) and t.ndim]
    parameters = [p for layer in layers for p in layer.weights()]
    return Subject(
        own.model,
        own.loss,
        own.loss_name,
        layers[:MOST_LAYERS],
        [],
        sizes[0] if sizes else None,
        tied=len({id(p) for p in parameters}) < len(parameters),
        layers_cut=max(len(layers) - MOST_LAYERS, 0),
        said=ran.said,
    )
