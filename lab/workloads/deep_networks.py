"""Deep networks to send a gradient through: an MLP, a recurrent network unrolled over time, transformer blocks.

All layers have one width, so that nothing but depth, activation, initialisation, normalisation and residual paths is
left to change the norms. Shapes: B batch, T time steps or tokens, W width. The take-away script prints these sources.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10
TOKENS = 16
"""Length of a sequence in the transformer family."""
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "gelu": nn.GELU,
    "selu": nn.SELU,
    "silu": nn.SiLU,
    "identity": nn.Identity,
}


class BatchNorm(nn.BatchNorm1d):
    """Statistics over all positions but the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)


NORMS: dict[str, type[nn.Module]] = {"none": nn.Identity, "batch": BatchNorm, "layer": nn.LayerNorm, "rms": nn.RMSNorm}


@torch.no_grad()
def initialise(linear: nn.Linear, init: str, gain: float) -> None:
    """``default`` keeps what nn.Linear drew, U(-1/√fan_in, 1/√fan_in), times ``gain``; the others have zero biases."""
    if init == "default":
        linear.weight.mul_(gain)
        return
    if init == "xavier":
        nn.init.xavier_normal_(linear.weight, gain)
    elif init == "kaiming":
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu").mul_(gain)
    else:
        nn.init.orthogonal_(linear.weight, gain)
    linear.bias.zero_()


class Layer(nn.Module):
    """One layer of the MLP: linear, activation, and where asked for a normalisation and a residual path."""

    def __init__(self, width: int, activation: str, norm: str, norm_position: str, residual: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = NORMS[norm](width)
        self.activation = ACTIVATIONS[activation]()
        self.pre, self.residual = norm_position == "pre", residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x) if self.pre else x)
        if self.residual:
            x = x + self.activation(y)
            return x if self.pre else self.norm(x)
        return self.activation(y if self.pre else self.norm(y))


class MLP(nn.Module):
    """(B, W) -> (B, classes)."""

    def __init__(
        self, *, depth: int, width: int, activation: str, norm: str, norm_position: str, residual: bool
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, activation, norm, norm_position, residual) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Cell(nn.Module):
    """What all time steps of the RNN share."""

    def __init__(self, width: int, activation: str, norm: str) -> None:
        super().__init__()
        self.input, self.recurrent = nn.Linear(width, width), nn.Linear(width, width)
        self.norm, self.activation = NORMS[norm](width), ACTIVATIONS[activation]()


class RecurrentStep(nn.Module):
    """One time step of the RNN."""

    def __init__(self, cell: Cell, residual: bool) -> None:
        super().__init__()
        self.cell, self.residual = cell, residual
        self.alias: torch.Tensor | None = None

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        shared = self.cell.recurrent
        self.alias = shared.weight.view_as(shared.weight)  # its gradient is what this step adds to the shared weight's
        if self.alias.requires_grad:
            self.alias.retain_grad()
        y = F.linear(h, self.alias, shared.bias) + self.cell.input(x)
        y = self.cell.activation(self.cell.norm(y))
        return h + y if self.residual else y


class RNN(nn.Module):
    """(B, T, W) -> (B, classes), read from the last state: h_t = φ(W h + U x_t + b)."""

    def __init__(
        self, *, depth: int, width: int, activation: str, norm: str, norm_position: str, residual: bool
    ) -> None:
        super().__init__()
        self.cell = Cell(width, activation, norm)
        self.layers = nn.ModuleList(RecurrentStep(self.cell, residual) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[:, 0])
        for t, step in enumerate(self.layers):
            h = step(x[:, t], h)
        return self.head(h)


class TransformerBlock(nn.Module):
    """Self-attention, then two linear layers, each with its normalisation and residual path."""

    def __init__(self, width: int, activation: str, norm: str, norm_position: str, residual: bool) -> None:
        super().__init__()
        self.heads = next(heads for heads in (4, 2, 1) if width % heads == 0)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.activation = ACTIVATIONS[activation]()
        self.norm1, self.norm2 = NORMS[norm](width), NORMS[norm](width)
        self.pre, self.residual = norm_position == "pre", residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.around(x, self.norm1, self.attention)
        return self.around(x, self.norm2, lambda y: self.down(self.activation(self.up(y))))

    def around(self, x: torch.Tensor, norm: nn.Module, part: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        y = part(norm(x) if self.pre else x)
        y = x + y if self.residual else y
        return y if self.pre else norm(y)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each (B, heads, T, W / heads)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """(B, T, W) -> (B, classes), read from the mean over the tokens."""

    def __init__(
        self, *, depth: int, width: int, activation: str, norm: str, norm_position: str, residual: bool
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            TransformerBlock(width, activation, norm, norm_position, residual) for _ in range(depth)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.layers:
            x = block(x)
        return self.head(x.mean(1))


FAMILIES: dict[str, type[MLP] | type[RNN] | type[Transformer]] = {"mlp": MLP, "rnn": RNN, "transformer": Transformer}


def classification_batch(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Standard normal inputs of ``shape``; the class of a sample is a linear function of its first position."""
    x = torch.randn(shape)
    first = x.flatten(1, -2)[:, 0] if x.ndim > 2 else x
    return x, (first @ torch.randn(shape[-1], CLASSES)).argmax(-1)


def input_shape(family: str, depth: int, width: int, batch: int) -> tuple[int, ...]:
    """(B, W), or (B, T, W) for sequences; an RNN of ``depth`` reads as many steps."""
    return {"mlp": (batch, width), "rnn": (batch, depth, width), "transformer": (batch, TOKENS, width)}[family]
