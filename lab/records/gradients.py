"""Records of gradients: over depth at the first step, over training, before and after clipping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.contract import Fault
from lab.records.program import Said


@dataclass(frozen=True)
class FirstNonfinite:
    """Where it happened."""

    layer: str
    operation: str
    """In the terms of the field: linear, exp, backward of sqrt, optimizer step."""
    pass_name: Literal["forward", "backward", "update"]
    value: str
    """NaN, infinity or −infinity."""
    line: int | None = None
    """Line of the visitor's program on which the operation ran."""
    got: float | None = None
    """The finite input of an operation with one input, where its result is the first that is not finite."""


@dataclass(frozen=True)
class OverTime:
    """The gradient that each time step of a recurrent module's input gets from the loss."""

    name: str
    """Path of the module."""
    kind: str
    norms: tuple[float, ...]
    """First step first."""


@dataclass(frozen=True)
class Layer:
    """One layer at the first step, before the update. None: not there or not measured, see ``why_none``."""

    name: str
    kind: str
    """Class of the module."""
    inner: bool
    """Part of the depth that is compared: not the head."""
    parameters: int
    """Numbers in its weights and biases."""
    weight_grad_norm: float | None
    weight_grad_rms: float | None
    weight_grad_mean: float | None
    weight_grad_max: float | None
    """Largest magnitude."""
    bias_grad_norm: float | None
    clipped_grad_norm: float | None
    """Norm of the weight gradient after clipping."""
    activation_grad_norm: float | None
    """Of the gradient of the layer's output."""
    activation_grad_rms: float | None
    activation_grad_mean: float | None
    activation_grad_max: float | None
    activation_norm: float | None
    """Of the layer's output."""
    activation_rms: float | None
    activation_mean: float | None
    activation_max: float | None
    cotangent_grad_norm: float | None
    """Of the gradient of the layer's output when a random tensor arrives at the last layer's: what the theory is about."""
    predicted_grad_norm: float | None
    """The same from the theory, equal to it at the last layer."""
    saturated_share: float | None
    """Share of the activation function's values within 1 % of a bound."""
    dead_share: float | None
    """Share of units that are exactly zero for the whole batch."""
    update_ratio: float | None
    """Norm of the weights' change at this step against their norm before."""
    underflow_fp16_share: float | None
    """Share of the weight gradient's values, zeros aside, that would be zero in fp16."""
    underflow_bf16_share: float | None
    underflow_fp16_scaled_share: float | None
    """The same after multiplying the loss by 65,536."""
    hardtanh_at_bound: int
    """Inputs of hardtanh that lie exactly on a bound."""
    why_none: str
    """Why the weight gradient is None or exactly zero."""


@dataclass(frozen=True)
class TrainingStep:
    """One step; lists hold one value a layer, in the order of ``GradientResult.layers``. The loss is before the update."""

    step: int
    loss: float
    weight_grad_norm: tuple[float | None, ...]
    activation_grad_norm: tuple[float | None, ...]
    activation_rms: tuple[float | None, ...]
    update_ratio: tuple[float | None, ...]


@dataclass(frozen=True)
class ClipStep:
    """The gradient of all parameters at one step. ``norm_before`` is measured in float64, ``returned`` is what torch says."""

    step: int
    norm_before: float
    norm_after: float
    returned: float | None
    """By clip_grad_norm_; None without it."""
    cosine: float | None
    """Of the angle between the gradient before and after."""
    clipped: bool
    """Whether any value changed."""
    changed_share: float
    """Share of values that changed."""


@dataclass(frozen=True)
class Clipping:
    """What was asked for, and what happened at every step."""

    kind: str
    limit: float | None
    """As it was passed; None without clipping."""
    norm_type: str
    steps: tuple[ClipStep, ...]
    clipped_share: float | None
    """Share of the steps at which a value changed; None without a step."""
    total_norms: dict[str, float]
    """At the first step, before clipping: the norm of all gradients as one vector, type 1, 2 and inf, and the sum of the layers' norms."""
    warning: str
    """What torch warned of."""
    error: str
    """What torch raised, which ended the training."""
    skipped_steps: int
    """Steps that a GradScaler skipped."""


@dataclass(frozen=True)
class Prediction:
    """The theory for wide random networks against the measurement. All slopes are decades a layer on the way back."""

    closed_form: bool
    reason: str
    """Why there is none; empty otherwise."""
    sigma_w2: float | None = None
    """Variance of a weight times the width."""
    sigma_b2: float | None = None
    chi: float | None = None
    """At the fixed point."""
    q: float | None = None
    """Mean square of what enters the activation, at the fixed point."""
    limit_decades_per_layer: float | None = None
    """½ · log10 χ at the fixed point."""
    decades_per_layer: float | None = None
    """Fitted over the inner layers, from each layer's own χ."""
    measured_decades_per_layer: float | None = None
    """Fitted over the same layers, with a random cotangent at the output."""
    tolerance: float | None = None
    """What √(depth / width) lets one expect between the two."""


@dataclass(frozen=True)
class Headline:
    """From the first inner layer to the last, for the gradient of the loss. Slopes as in ``Prediction``."""

    activation_grad_ratio: float | None
    """First layer against last: below 1 the gradient vanishes on its way to the input."""
    weight_grad_ratio: float | None
    decades_per_layer: float | None
    """Fitted to the activation gradient over the inner layers."""
    weight_decades_per_layer: float | None


@dataclass(frozen=True)
class GradientResult(Said):
    """The first step in detail, every step in short."""

    headline: Headline
    layers: tuple[Layer, ...]
    """In the order in which they ran; those that did not run come last."""
    layers_cut: int
    """Layers beyond the first hundreds, not kept."""
    steps: tuple[TrainingStep, ...]
    loss: tuple[float, ...]
    """Before each update, one a step."""
    final_loss: float | None
    """After the last update."""
    loss_name: str
    batch_size: int | None
    clipping: Clipping
    prediction: Prediction
    first_nonfinite: FirstNonfinite | None
    first_nonfinite_step: int | None
    parameters: int
    """Numbers in all parameters, tied ones once."""
    tied: bool
    """Layers share their weights."""
    dtype: str
    instrument_s: float | None
    """What watching one step costs, against a step without it."""
    settings: dict[str, str]
    """The knobs that findings speak of."""
    fault: Fault | None
    over_time: tuple[OverTime, ...] = ()
    """At the first step; for the recurrent modules of a visitor's model."""
    unused: tuple[str, ...] = ()
    """Parameters that require gradients and got None although their layer has others that got one."""
    masked: tuple[str, ...] = ()
    """Modules that have an attribute ``requires_grad`` set to False, and parameters that require gradients all the same."""
