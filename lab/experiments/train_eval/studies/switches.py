"""train/eval × grad/no_grad/inference_mode: six forwards of one network, everything that differs measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import nn
from torch.autograd.graph import Node

from lab.records.modes_models import SwitchRow

GRADIENTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}
MODES = ("train", "eval")
REPEATS = 15


def read_switches(make: Callable[[], nn.Sequential], x: torch.Tensor, seed: int) -> tuple[SwitchRow, ...]:
    """Six rows, each on a fresh network from ``make`` with equal weights. Its last Dropout and BatchNorm are watched."""
    return tuple(_switch_row(make, x, seed, mode, gradients) for mode in MODES for gradients in GRADIENTS)


def _switch_row(make: Callable[[], nn.Sequential], x: torch.Tensor, seed: int, mode: str, gradients: str) -> SwitchRow:
    torch.manual_seed(seed)
    net = make().to(x.device).train(mode == "train")
    norm = next(m for m in net if isinstance(m, nn.BatchNorm1d))
    drop = next(m for m in net if isinstance(m, nn.Dropout))
    seen: list[torch.Tensor] = []
    handle = drop.register_forward_hook(lambda _m, args, y: seen.extend((args[0].detach(), y.detach())))
    assert norm.running_mean is not None
    assert norm.num_batches_tracked is not None
    before, counted, saved = norm.running_mean.clone(), int(norm.num_batches_tracked), _Saved()
    with GRADIENTS[gradients](), saved:
        output = net(x)
    moved, counted = not torch.equal(norm.running_mean, before), int(norm.num_batches_tracked) - counted
    handle.remove()
    with GRADIENTS[gradients]():
        again = net(x)
        spread = (output - again).abs().max().item()
        forward_s = _median_seconds(net, x)
    active, kept = seen[0] != 0, seen[1] != 0
    return SwitchRow(
        mode=mode,
        gradients=gradients,
        dropped_fraction=(active & ~kept).sum().item() / max(int(active.sum()), 1),
        output_spread=spread,
        statistics_moved=moved,
        batches_counted=counted,
        requires_grad=output.requires_grad,
        graph=type(output.grad_fn).__name__ if output.grad_fn else "",
        graph_nodes=_node_count(output),
        saved_bytes=saved.total_bytes,
        is_inference=output.is_inference(),
        backward_error=_backward_error(output),
        output=tuple(output[0].tolist()),
        forward_s=forward_s,
    )


class _Saved(torch.autograd.graph.saved_tensors_hooks):
    """Counts what a forward saves for backward: each distinct storage once."""

    def __init__(self) -> None:
        self.storages: dict[int, int] = {}
        super().__init__(self._pack, lambda packed: packed)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def total_bytes(self) -> int:
        return sum(self.storages.values())


def _node_count(output: torch.Tensor) -> int:
    found: set[Node] = set()
    todo: list[Node | None] = [output.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo.extend(parent for parent, _ in node.next_functions)
    return len(found)


def _backward_error(output: torch.Tensor) -> str:
    try:
        output.sum().backward()
    except RuntimeError as error:
        return str(error)
    return ""


def _median_seconds(net: nn.Module, x: torch.Tensor) -> float:
    times = []
    for _ in range(REPEATS):
        _wait(x)
        started = time.perf_counter()
        net(x)
        _wait(x)
        times.append(time.perf_counter() - started)
    return sorted(times)[REPEATS // 2]


def _wait(x: torch.Tensor) -> None:
    """A launch returns before the device has worked: wait before reading the clock."""
    if x.is_cuda:
        torch.cuda.synchronize()
