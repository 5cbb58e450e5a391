"""Which modules of a program are its models: the outermost ones that hold something."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lab.experiments.module_anatomy.census import Census
from lab.experiments.module_anatomy.watch import ModuleWatch
from lab.instruments.describing.names import class_module
from lab.program.own_model import MODELS
from lab.program.run import Ran

MOST_ROOTS = 6


def roots_of(ran: Ran, watch: ModuleWatch) -> list[tuple[str, nn.Module]]:
    """(name, module), the one called model, net or network first."""
    named = [(n, v) for n, v in ran.namespace.items() if issubclass(type(v), nn.Module) and not n.startswith("_")]
    called = [(call.name, call.module) for call in ran.seen.calls.values()]
    kept = [(type(m).__name__, m) for m in watch.kept.values() if not _born_in_forward(watch, m)]
    found = _outermost(named, watch)
    if not found or not any(_holds(m, watch) for _, m in found):
        found = _around(called, _own_classes(kept), watch) or _outermost(_own_classes(kept) or kept, watch)
    found = [pair for pair in found if _holds(pair[1], watch)] or found[:1]
    found.sort(key=lambda pair: pair[0].split(".")[-1] not in MODELS)
    return found[:MOST_ROOTS]


def _around(
    called: list[tuple[str, nn.Module]], kept: list[tuple[str, nn.Module]], watch: ModuleWatch
) -> list[tuple[str, nn.Module]]:
    """The outermost modules that hold one that was called."""
    wanted = {id(module) for _, module in called}
    found = _outermost([*called, *kept], watch)
    return [pair for pair in found if wanted & {id(row.module) for row in Census([pair], watch).modules}]


def _born_in_forward(watch: ModuleWatch, module: nn.Module) -> bool:
    born = watch.born(module)
    return born is not None and born.place.in_forward


def _own_classes(pairs: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    return [pair for pair in pairs if class_module(type(pair[1])) == "__main__"]


def _holds(module: nn.Module, watch: ModuleWatch) -> bool:
    """Whether it, or what hangs on it, has a tensor."""
    return bool(Census([("", module)], watch).tensors)


def _outermost(pairs: list[tuple[str, nn.Module]], watch: ModuleWatch) -> list[tuple[str, nn.Module]]:
    """Those that are no part of another, each once."""
    once = {id(module): (name, module) for name, module in reversed(pairs)}
    order = [once[id(module)] for _, module in pairs if id(module) in once]
    distinct = list({id(module): (name, module) for name, module in order}.values())
    inner: set[int] = set()
    for name, module in distinct:
        if id(module) not in inner:
            inner |= {id(row.module) for row in Census([(name, module)], watch).modules if row.module is not module}
    return [(name, module) for name, module in distinct if id(module) not in inner]


def input_for(module: nn.Module) -> torch.Tensor | None:
    """An input that the first layer with a known width takes; None where there is none such."""
    for part in module.modules():
        shape = _input_shape(part)
        if shape is not None:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                if isinstance(part, (nn.Embedding, nn.EmbeddingBag)):
                    return torch.randint(0, part.num_embeddings, shape)
                like: Any = next(part.parameters(), None)
                return torch.randn(shape, dtype=like.dtype if like is not None else None)
        if (
            not isinstance(part, nn.ModuleList | nn.ModuleDict)
            and next(part.parameters(recurse=False), None) is not None
        ):
            return None
    return None


def _input_shape(part: nn.Module) -> tuple[int, ...] | None:
    match part:
        case nn.LazyLinear():
            return 4, 8
        case nn.Linear(in_features=width):
            return 4, width
        case nn.Conv1d(in_channels=channels):
            return 2, channels, 32
        case nn.Conv2d(in_channels=channels):
            return 2, channels, 32, 32
        case nn.Embedding() | nn.EmbeddingBag():
            return 2, 6
        case nn.LSTM(input_size=width) | nn.GRU(input_size=width) | nn.RNN(input_size=width):
            return 2, 5, width
        case _:
            return None
