"""Put the blocks of a model under activation checkpointing, whoever wrote it, and whether or not they look alike.

NOTE Which modules are blocks.
1. The parts of a list: ``nn.Sequential``, ``nn.ModuleList``, ``nn.ModuleDict``, of two parts or more.
2. A list of blocks has parts of which at least half have parts themselves; all such lists count, so each stage of a
   ResNet, encoder and decoder. A list whose part is such a list again is taken apart first; nothing is looked for inside a block.
3. Where no list is one of blocks, the list with the most parameters counts, whose parts are single layers.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lab.workloads.models import Blocks


def is_list(module: nn.Module) -> bool:
    """A container with parts."""
    return isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)) and len(module) > 1


def is_list_of_blocks(module: nn.Module) -> bool:
    """At least half of its parts have parts themselves."""
    deep = [any(True for _ in part.children()) for part in module.children()]
    return is_list(module) and 2 * sum(deep) >= len(deep)


def block_lists(model: nn.Module) -> list[nn.Module]:
    """Lists whose parts are the blocks of the model, none inside another."""
    found: list[nn.Module] = [m for m in model.modules() if isinstance(m, Blocks)] or list(lists_below(model))
    if not found:
        lists = [m for m in model.modules() if is_list(m)]
        most = max(lists, key=lambda m: (sum(p.numel() for p in m.parameters()), len(list(m.children()))), default=None)
        found = [most] if most is not None else []
    return found


def lists_below(module: nn.Module) -> Iterator[nn.Module]:
    """Rule 2."""
    parts = list(module.children())
    if is_list_of_blocks(module) and not any(is_list_of_blocks(part) for part in parts):
        yield module
        return
    for part in parts:
        yield from lists_below(part)


def blocks_of(model: nn.Module) -> dict[str, nn.Module]:
    """Path -> block, in the order of the lists."""
    paths = {module: path for path, module in model.named_modules()}
    return {paths[block]: block for chain in block_lists(model) for block in chain.children()}


def are_equal(*blocks: nn.Module) -> bool:
    """Whether all are of one class, with parameters of the same names, shapes and dtypes."""
    kinds = {
        (type(part), *((name, p.shape, p.dtype, p.requires_grad) for name, p in part.named_parameters()))
        for part in blocks
    }
    return len(kinds) == 1


class Segments:
    """The checkpointed segments of a model. ``ran``: those through which a forward with gradients went."""

    def __init__(self) -> None:
        self.ran: set[object] = set()

    def run(self, segment: Any, reentrant: bool, /, *args: Any, **kwargs: Any) -> Any:
        """Run a function as a segment."""
        if torch.is_grad_enabled():
            self.ran.add(segment)
        return checkpoint(segment, *args, use_reentrant=reentrant, **kwargs)


def under_checkpoint(
    model: nn.Module,
    how: Literal["every", "all", "chosen"],
    every: int,
    reentrant: bool,
    chosen: Collection[int] = (),
) -> Segments:
    """Put segments of the model under checkpointing; its classes, names and hooks stay.

    ``every``: blocks in a segment; ``all``: one segment around all; ``chosen``: each block of these numbers alone.
    Only the parts of a plain ``nn.Sequential`` can share a segment: what happens between others only the model knows.
    """
    segments = Segments()
    if how == "chosen":
        for number, block in enumerate(blocks_of(model).values()):
            if number in chosen:
                block.forward = functools.partial(segments.run, block.forward, reentrant)
        return segments
    for chain in block_lists(model):
        length = len(list(chain.children())) if how == "all" else every
        if isinstance(chain, Blocks):
            chain.every, chain.reentrant = min(length, len(chain)), reentrant
            segments.ran |= {(chain, start) for start in range(0, len(chain), max(1, chain.every))}
        elif length > 1 and type(chain).forward is nn.Sequential.forward:
            chain.forward = functools.partial(_in_segments, chain, _pieces(chain, length), segments, reentrant)
        else:
            for block in chain.children():
                block.forward = functools.partial(segments.run, block.forward, reentrant)
    return segments


def _pieces(chain: nn.Module, length: int) -> list[Any]:
    parts = list(chain)  # pyright: ignore[reportArgumentType]
    return [functools.partial(_one_by_one, parts[at : at + length]) for at in range(0, len(parts), length)]


def _one_by_one(parts: list[nn.Module], x: Any) -> Any:
    for part in parts:
        x = part(x)
    return x


def _in_segments(chain: nn.Module, pieces: list[Any], segments: Segments, reentrant: bool, x: Any) -> Any:
    for piece in pieces:
        x = segments.run(piece, reentrant, x)
    return x
