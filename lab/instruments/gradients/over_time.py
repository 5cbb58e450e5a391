"""How much of a loss's gradient reaches each time step of the input of a recurrent module.

One forward pass of its own: the input sequence of each ``nn.RNN``, ``nn.GRU`` and ``nn.LSTM`` is replaced by a copy that
takes a gradient, whose values are the same; then d loss / d input, a norm for each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lab.instruments.gradients.norms import norm
from lab.records.gradients import OverTime


def over_time(model: nn.Module, loss: Callable[[], torch.Tensor]) -> tuple[OverTime, ...]:
    """One row a recurrent module that ran on a padded sequence (T, B, C) or (B, T, C); its last call counts."""
    seen: dict[str, tuple[nn.RNNBase, torch.Tensor]] = {}
    handles = []
    for path, module in model.named_modules():
        if isinstance(module, nn.RNNBase):

            def follow(called: nn.RNNBase, args: tuple[Any, ...], name: str = path) -> tuple[Any, ...] | None:
                if not args or type(args[0]) is not torch.Tensor or args[0].ndim != 3:
                    return None
                sequence = args[0].detach().requires_grad_()
                seen[name] = called, sequence
                return (sequence, *args[1:])

            handles.append(module.register_forward_pre_hook(follow))
    if not handles:
        return ()
    try:
        total = loss()
    finally:
        for handle in handles:
            handle.remove()
    if not seen or not total.requires_grad:
        return ()
    # cuDNN's and the fused kernels' backward is asked once for all modules; a lower layer's input is cut from a higher one's
    rows = []
    for name, (module, sequence) in seen.items():
        (gradient,) = torch.autograd.grad(total, sequence, retain_graph=True, allow_unused=True)
        if gradient is not None:
            steps = gradient.transpose(0, 1) if module.batch_first else gradient  # (T, B, C)
            rows.append(OverTime(name, type(module).__name__, tuple(float(norm(step)) for step in steps)))
    return tuple(rows)
