"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.contract import Knob, Limits, ParamsError, check, knob
from lab.records.gradients import GradientResult
from lab.workloads.deep_networks import ACTIVATIONS, TOKENS
from lab.workloads.optimizers import OPTIMIZERS

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
    optimizer: str = knob("sgd", choices=tuple(OPTIMIZERS))
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
    code: str = knob("", program=Limits(wall_s=20.0, memory_bytes=2 << 30), max_bytes=1 << 16)
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


Result = GradientResult
