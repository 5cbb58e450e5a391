"""Put the repeated blocks of a model under activation checkpointing, whoever wrote it."""

from __future__ import annotations

import functools
from typing import Literal

from torch import nn
from torch.utils.checkpoint import checkpoint

from lab.workloads.models import Blocks


def repeated_blocks(model: nn.Module) -> nn.Module | None:
    """The ``Blocks``, ``nn.Sequential`` or ``nn.ModuleList`` with the most parameters among those of two or more parts."""
    kinds = [m for m in model.modules() if isinstance(m, (nn.Sequential, nn.ModuleList)) and len(m) > 1]
    own = [m for m in kinds if isinstance(m, Blocks)]
    return max(own or kinds, key=lambda m: (sum(p.numel() for p in m.parameters()), len(m)), default=None)


def are_equal(blocks: nn.Module) -> bool:
    """Whether all parts are of one class, with parameters of the same names, shapes and dtypes."""
    kinds = {
        (type(part), *((name, p.shape, p.dtype, p.requires_grad) for name, p in part.named_parameters()))
        for part in blocks.children()
    }
    return len(kinds) == 1


def under_checkpoint(
    model: nn.Module, how: Literal["every", "all"], every: int, reentrant: bool
) -> tuple[nn.Module, int]:
    """(the model with checkpointed blocks, how many segments); 0 segments when it has no repeated blocks.

    ``every``: blocks in a segment; ``all``: one segment around all of them. The model is changed; the root is another
    module only when it was an ``nn.Sequential`` itself. A ModuleList is checkpointed block by block, since only the
    model knows what happens between its blocks.
    """
    blocks = repeated_blocks(model)
    if blocks is None:
        return model, 0
    count = len(blocks)  # pyright: ignore[reportArgumentType]
    if isinstance(blocks, nn.Sequential):
        chain = Blocks(list(blocks))
        model = chain if model is blocks else _replaced(model, blocks, chain)
        blocks = chain
    if isinstance(blocks, Blocks):
        blocks.every, blocks.reentrant = (count if how == "all" else min(every, count)), reentrant
        return model, -(-count // blocks.every)
    for block in blocks.children():
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=reentrant)
    return model, count


def _replaced(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if child is old:
                setattr(parent, name, new)
    return model
