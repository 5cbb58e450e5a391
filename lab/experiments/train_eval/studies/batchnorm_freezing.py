"""What moves the running statistics of a BatchNorm layer, and what does not: each thing people do, done to a trained layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lab.experiments.train_eval.studies.batchnorm_trace import by_formula, rms
from lab.records.modes_batchnorm import Recomputed, Treatment
from lab.workloads.channel_batches import batch_of

WARM_BATCHES = 5


Act = Callable[[nn.BatchNorm1d, torch.Tensor], torch.Tensor | None]
"""Does something to a layer with a batch; returns the output when there is one."""


def _backward(y: torch.Tensor) -> torch.Tensor:
    y.square().mean().backward()
    return y.detach()


def _step(layer: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    return _backward(layer(x))


def _requires_grad_off(layer: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    return layer.requires_grad_(False)(x)


def _no_grad(layer: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return layer(x)


def _checkpointed(layer: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    y = checkpoint(layer, x.requires_grad_(), use_reentrant=False)
    assert isinstance(y, torch.Tensor)
    return _backward(y)


def _eval(layer: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    return _step(layer.eval(), x)


def _next_epoch(layer: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    model = nn.Sequential(layer)
    layer.eval().requires_grad_(False)
    model.train()  # what a training loop does at the start of an epoch
    return model(x)


class FrozenNorm(nn.BatchNorm1d):
    """Stays in eval mode whatever the model around it is told."""

    def train(self, mode: bool = True) -> FrozenNorm:
        super().train(False)
        return self


def _frozen(layer: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    layer.__class__ = FrozenNorm
    model = nn.Sequential(layer.requires_grad_(False))
    model.train()
    return model(x)


def _momentum_zero(layer: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    layer.momentum = 0.0
    return _step(layer, x)


def _empty_state(layer: nn.BatchNorm1d, x: torch.Tensor) -> None:
    layer.load_state_dict({}, strict=False)


def _without_counter(layer: nn.BatchNorm1d, x: torch.Tensor) -> None:
    state = layer.state_dict()
    del state["num_batches_tracked"]
    layer.load_state_dict(state)


def _batch_of_one(layer: nn.BatchNorm1d, x: torch.Tensor) -> None:
    layer(x[:1])


def _untracked_one(layer: nn.BatchNorm1d, x: torch.Tensor) -> None:
    nn.BatchNorm1d(x.shape[1], track_running_stats=False).to(x).eval()(x[:1])


def _micro_batches(layer: nn.BatchNorm1d, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([_step(layer, part) for part in x.chunk(2)])


TREATMENTS: dict[str, tuple[Act, str]] = {
    "train mode": (_step, "The usual step: the statistics move, the weight learns."),
    "requires_grad=False": (
        _requires_grad_off,
        "Stops the weight, not the statistics: they are buffers, moved by the forward.",
    ),
    "extra forward, no_grad": (_no_grad, "no_grad stops recording. The forward in train mode still stores."),
    "checkpoint": (_checkpointed, "Checkpointing runs the forward again in backward: the batch is stored twice."),
    "two micro-batches": (_micro_batches, "Gradient accumulation: each part is normalised and stored on its own."),
    "eval()": (_eval, "The statistics stay. The weight still gets a gradient."),
    "eval(), then model.train()": (_next_epoch, "model.train() at the next epoch switches the layer back."),
    "frozen properly": (_frozen, "requires_grad=False, and a train() that keeps eval mode: nothing moves."),
    "momentum=0": (_momentum_zero, "The statistics keep their value, but the output is still normalised by the batch."),
    "empty state dict": (
        _empty_state,
        "load_state_dict({}, strict=False): does this version of torch keep the counter?",
    ),
    "state dict without counter": (
        _without_counter,
        "num_batches_tracked is a buffer, needed for momentum=None. A state dict of an older torch without version "
        "metadata is filled in; one with metadata is refused.",
    ),
    "batch of one": (_batch_of_one, "One value a channel has no variance: torch refuses."),
    "untracked, eval(), batch of one": (
        _untracked_one,
        "Without running statistics eval mode uses the batch too; the message says training although eval() was called.",
    ),
}


def read_treatments(channels: int, batch: int, seed: int, device: str) -> tuple[Treatment, ...]:
    """Every treatment on a fresh layer of its own, in float64, same data. Batches have at least 4 samples."""
    return tuple(_treatment(name, channels, max(batch, 4), seed, device) for name in TREATMENTS)


def _treatment(name: str, channels: int, batch: int, seed: int, device: str) -> Treatment:
    act, meaning = TREATMENTS[name]
    torch.manual_seed(seed)
    layer = nn.BatchNorm1d(channels, dtype=torch.float64, device=device)
    for _ in range(WARM_BATCHES):
        layer(batch_of((batch, channels), torch.float64, device))
    mean, counted = _statistics(layer)
    x = batch_of((batch, channels), torch.float64, device)
    usual, error, output = by_formula(x, layer.eps), "", None
    try:
        output = act(layer, x)
    except (ValueError, RuntimeError) as raised:
        error = " ".join(str(raised).split())
    new_mean, new_counted = _statistics(layer)
    return Treatment(
        name=name,
        batches_counted=new_counted - counted,
        mean_moved=(new_mean - mean).abs().max().item(),
        weight_gradient=layer.weight.grad is not None,
        output_gap=None if output is None else rms(output.detach() - usual),
        meaning=meaning,
        error=error,
    )


def _statistics(layer: nn.BatchNorm1d) -> tuple[torch.Tensor, int]:
    assert layer.running_mean is not None
    assert layer.num_batches_tracked is not None
    return layer.running_mean.clone(), int(layer.num_batches_tracked)


@torch.no_grad()
def read_recomputed(channels: int, batch: int, batches: int, seed: int, device: str) -> Recomputed:
    """Momentum 0.1 over the batches, then the cumulative average over the same batches."""
    torch.manual_seed(seed)
    data = [batch_of((max(batch, 2), channels), torch.float64, device) for _ in range(batches)]
    layer = nn.BatchNorm1d(channels, dtype=torch.float64, device=device)
    for x in data:
        layer(x)
    before = tuple(layer.running_mean.tolist())  # type: ignore[union-attr]
    layer.reset_running_stats()
    layer.momentum = None
    for x in data:
        layer(x)
    return Recomputed(tuple(layer.running_mean.tolist()), tuple(torch.cat(data).mean(0).tolist()), before)  # type: ignore[union-attr]
