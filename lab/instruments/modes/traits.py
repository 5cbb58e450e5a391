"""What can be read from the modules of a model, before anything runs, about how they will behave in the two modes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from lab.records.modes_models import InitialShare, Nonfinite


def idle_dropouts(model: nn.Module) -> Iterator[str]:
    """Recurrent modules whose ``dropout`` drops nothing: it acts between layers, and there is one."""
    for path, module in model.named_modules():
        if isinstance(module, nn.RNNBase) and module.dropout > 0 and module.num_layers == 1:
            yield f"{path} ({type(module).__name__})".strip()


def initial_shares(model: nn.Module) -> Iterator[InitialShare]:
    """How much of the initial 0 and 1 is still in the running statistics: (1 − momentum) to the number of batches."""
    for path, module in model.named_modules():
        tracked, momentum = getattr(module, "num_batches_tracked", None), getattr(module, "momentum", None)
        if isinstance(tracked, torch.Tensor) and isinstance(momentum, float) and (batches := int(tracked)):
            name = f"{path} ({type(module).__name__})".strip()
            yield InitialShare(name, momentum, batches, (1 - momentum) ** batches)


def nonfinite_buffers(model: nn.Module) -> Iterator[Nonfinite]:
    """Running statistics that hold NaN or infinity. Other buffers may: a causal mask is made of infinities."""
    for name, buffer in model.named_buffers():
        if name.endswith(("running_mean", "running_var")) and not (finite := torch.isfinite(buffer)).all():
            yield Nonfinite(name, int((~finite).sum()), buffer.numel())


def kept_in_eval(model: nn.Module) -> tuple[str, ...]:
    """Modules that are in eval mode now, right after ``model.train()``: some ``train`` of the model's own keeps them there."""
    return tuple(
        f"{path} ({type(module).__name__})".strip() for path, module in model.named_modules() if not module.training
    )


def holder(model: nn.Module, sought: nn.Module) -> str:
    """The attribute of a registered module in whose plain list, tuple or dict ``sought`` lies: ``drops`` or ``body.drops``; else empty."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_"):
                continue
            items = (
                value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
            )
            if any(item is sought for item in items):
                return f"{path}.{name}" if path else name
    return ""
