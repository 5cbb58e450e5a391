"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Fault, Knob, Limits, ParamsError, check, knob
from lab.instruments.gradients.first_nonfinite import FirstNonfinite
from lab.records.program import Said
from lab.workloads.networks import ACTIVATIONS, TOKENS

MOST_PARAMETERS = 30_000_000
MOST_MULTIPLICATIONS = 1.5e12
"""Of all training steps together: about a minute on one core."""
NORM_TYPES = {"1": 1.0, "2": 2.0, "inf": float("inf")}
NO_STATE = "zero: the state before the first step is zero, and the gradient of a matrix is a product with its input"
"""Why the first step of an RNN adds nothing to the recurrent weight's gradient."""
DTYPES = ("float32", "float64", "bfloat16", "float16")


@dataclass(frozen=True)
class Params:
    """The network, its initialisation, and how it is trained."""

    family: str = knob("mlp", choices=("mlp", "rnn", "transformer", "own"))
    """An MLP, an RNN unrolled over time, transformer blocks, or a model of your own."""
    depth: int = knob(30, low=1, high=200)
    """Layers of the MLP, time steps of the RNN, blocks of the transformer."""
    activation: str = knob("tanh", choices=tuple(ACTIVATIONS))
    """Activation function of every layer."""
    init: str = knob("default", choices=("default", "xavier", "kaiming", "orthogonal"))
    """Initialisation of the weights. default is what nn.Linear does by itself: uniform with variance 1/(3·fan_in)."""
    gain: float = knob(1.0, low=0.0, high=10.0, step=0.05)
    """Factor on the initial weights."""
    width: int = knob(128, low=2, high=1024)
    """Units of every layer."""
    batch: int = knob(64, low=2, high=1024)
    """Samples in the one batch that is trained on."""
    norm: str = knob("auto", choices=("auto", "none", "batch", "layer", "rms"))
    """Normalisation. auto: layer for the transformer, none for the others."""
    norm_position: str = knob("post", choices=("pre", "post"))
    """pre: before the linear maps. post: after them, and after the residual sum where there is one."""
    residual: bool | None = knob(None)
    """Residual paths around every layer. auto: on for the transformer, off for the others."""
    loss: str = knob("cross_entropy", choices=("cross_entropy", "mse", "random"))
    """Cross-entropy, mean squared error, or the product of the output with a fixed random tensor."""
    reduction: str = knob("mean", choices=("mean", "sum"))
    """How the losses of the samples are joined."""
    dtype: str = knob("float32", choices=DTYPES)
    """Of parameters, activations and gradients."""
    optimizer: str = knob("sgd", choices=("sgd", "momentum", "adam", "adamw"))
    """momentum is SGD with 0.9."""
    lr: float = knob(0.1, low=0.0, high=1000.0)
    """Learning rate."""
    steps: int = knob(20, low=1, high=200)
    """Training steps on the same batch. The view over depth shows the first."""
    clip: str = knob("none", choices=("none", "norm", "value"))
    """norm: clip_grad_norm_ over all parameters. value: clip_grad_value_."""
    clip_limit: float = knob(1.0, low=0.0, high=1e6)
    """Largest norm, or largest magnitude. 0 does not switch clipping off: it sets every gradient to zero."""
    norm_type: str = knob("2", choices=tuple(NORM_TYPES))
    """Which norm clip_grad_norm_ limits."""
    error_if_nonfinite: bool = knob(False)
    """Whether clip_grad_norm_ raises when the norm is NaN or infinite."""
    trap: str = knob("none", choices=("none", "inf", "nan", "overflow", "generator", "negative", "unscale"))
    """A mistake to plant. inf, nan, overflow: one such gradient in the middle layer at the first step. generator: the
    parameters are read before clipping. negative: the limit gets a minus sign. unscale: clipping before unscaling."""
    code: str = knob("", program=Limits(wall_s=20.0, memory_bytes=2 << 30))
    """For family own: a program that defines model, batch and, where the default does not fit, loss(model, batch)."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of data, weights and everything else."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Where it runs."""

    def __post_init__(self) -> None:
        check(self)
        if self.family != "own":
            _check_size(self)
        if self.trap == "unscale" and self.dtype not in ("float32", "float64"):
            raise ParamsError(f"trap = unscale needs dtype = float32: a GradScaler refuses gradients in {self.dtype}")

    @property
    def norm_used(self) -> str:
        return ("layer" if self.family == "transformer" else "none") if self.norm == "auto" else self.norm

    @property
    def residual_used(self) -> bool:
        return self.family == "transformer" if self.residual is None else self.residual


_OF_A_FAMILY = {"depth", "width", "batch", "activation", "init", "gain", "norm", "norm_position", "residual", "loss", "reduction", "dtype"}  # fmt: skip
_OF_CLIPPING = {"clip_limit", "norm_type", "error_if_nonfinite", "trap"}


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob as it is offered beside these values: None where it does not matter."""
    own, clip = values["family"] == "own", values["clip"]
    if k.name == "code":
        return k if own else None
    if k.name == "norm_position" and values["norm"] == "none":
        return None
    if k.name in _OF_CLIPPING and clip == "none":
        return None
    if k.name in ("norm_type", "error_if_nonfinite") and clip == "value":
        return None
    return None if own and k.name in _OF_A_FAMILY else k


def _check_size(params: Params) -> None:
    square = params.width**2
    layers = {"mlp": params.depth, "rnn": 2, "transformer": 12 * params.depth}[params.family]
    if layers * square > MOST_PARAMETERS:
        raise ParamsError(
            f"depth = {params.depth} with width = {params.width} has {layers * square:,} weights; the limit is "
            f"{MOST_PARAMETERS:,}: choose fewer layers or a smaller width"
        )
    uses = {"mlp": layers, "rnn": 2 * params.depth, "transformer": TOKENS * layers}[params.family]
    count = 3.0 * uses * square * params.batch * params.steps
    if count > MOST_MULTIPLICATIONS:
        raise ParamsError(
            f"{params.steps} steps need {count:.1e} multiplications; the limit is {MOST_MULTIPLICATIONS:.1e}: "
            "choose fewer steps, a smaller batch or a smaller width"
        )


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
    """One step; lists hold one value a layer, in the order of ``Result.layers``. The loss is before the update."""

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
class Result(Said):
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
