"""The modes measured: what they record and keep, and what they cost; beside train and eval."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lab import torch_private
from lab.experiments.gradient_modes.schema import Params
from lab.records.gradient_modes import ModeRow, SwitchCell

CALLS, SWITCHED = 100, ("grad", "no_grad", "inference_mode")
Context = Callable[[], Any]
_ENTER: dict[str, Context] = {
    "grad": contextlib.nullcontext,
    "detach": contextlib.nullcontext,
    ".data": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "set_grad_enabled(False)": lambda: torch.set_grad_enabled(False),
    "enable_grad": torch.enable_grad,
    "inference_mode(False)": lambda: torch.inference_mode(False),
}
ROWS: tuple[tuple[str, str], ...] = (
    ("none", "grad"), ("none", "no_grad"), ("none", "set_grad_enabled(False)"), ("none", "inference_mode"),
    ("no_grad", "enable_grad"), ("inference_mode", "enable_grad"), ("inference_mode", "inference_mode(False)"),
    ("none", "detach"), ("none", ".data"),
)  # fmt: skip
"""(around, inner)."""


@contextlib.contextmanager
def entered(outer: str, mode: str) -> Iterator[None]:
    """Both modes, the outer one first."""
    with contextlib.nullcontext() if outer == "none" else _ENTER[outer](), _ENTER[mode]():
        yield


def title(outer: str, mode: str) -> str:
    return mode if outer == "none" else f"{mode} in {outer}"


class _Held:
    """What autograd keeps in place of a tensor: it lives as long as its node."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class _Saved:
    """Bytes of the distinct storages that autograd still keeps, without ``known`` ones."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        self._known = {torch_private.storage_key(t) for t in known}
        self._held: weakref.WeakSet[_Held] = weakref.WeakSet()

    def __call__(self, tensor: torch.Tensor) -> _Held:
        held = _Held(tensor)
        self._held.add(held)
        return held

    @property
    def bytes(self) -> int:
        found = {torch_private.storage_key(h.tensor): h.tensor.untyped_storage().nbytes() for h in self._held}
        return sum(size for key, size in found.items() if key not in self._known)


def _forward(
    net: nn.Module, x: torch.Tensor, around: Callable[[], Any], after: Callable[[torch.Tensor], Any]
) -> tuple[torch.Tensor, int]:
    saved = _Saved([*net.parameters(), *net.buffers(), x])
    with torch.autograd.graph.saved_tensors_hooks(saved, lambda held: held.tensor), around():
        y = after(net(x))
    return y, saved.bytes


@dataclass
class _Subject:
    outer: str
    mode: str
    leaf: torch.Tensor
    plain: torch.Tensor

    def after(self, t: torch.Tensor) -> torch.Tensor:
        return t.detach() if self.mode == "detach" else t.data if self.mode == ".data" else t

    def around(self) -> Any:
        return entered(self.outer, self.mode)


def measure_modes(params: Params, progress: Callable[[float], None]) -> tuple[ModeRow, ...]:
    """One row a mode; the chosen one last."""
    net = nn.Sequential(nn.Linear(64, params.width), nn.GELU(), nn.Linear(params.width, 10)).train(not params.eval_mode)
    x = torch.randn(params.batch, 64)
    leaf, plain = torch.ones(4, requires_grad=True), torch.ones(4)
    subjects = [_Subject(*row, leaf, plain) for row in (*ROWS, (params.outer, params.mode))]
    times = _times(subjects, params, progress)
    return tuple(_row(s, net, x, times[i]) for i, s in enumerate(subjects))


def _row(s: _Subject, net: nn.Module, x: torch.Tensor, times: list[float]) -> ModeRow:
    with s.around():
        y = s.after(s.leaf * 2)
    _, saved = _forward(net, x, s.around, s.after)
    records = _reaches(y, s.leaf)
    node = type(y.grad_fn).__name__ if y.grad_fn is not None else ""
    enter = None if s.outer == "none" and _ENTER[s.mode] is contextlib.nullcontext else times[3]
    return ModeRow(
        title(s.outer, s.mode), y.requires_grad, node, y.is_inference(), torch_private.version(y), records, saved,
        times[0], times[1], times[2], enter,
    )  # fmt: skip


def _reaches(y: torch.Tensor, leaf: torch.Tensor) -> bool:
    """By behaviour, not by a flag: a backward is asked for."""
    leaf.grad = None
    try:
        y.sum().backward()
    except RuntimeError:
        return False
    return leaf.grad is not None


def _times(subjects: list[_Subject], params: Params, progress: Callable[[float], None]) -> list[list[float]]:
    """Seconds of a product, a write, a view, and of entering: the shortest of rounds in which all take turns."""
    best = [[float("inf")] * 4 for _ in subjects]
    for turn in range(params.repeats):
        progress(turn / params.repeats)
        for at, s in enumerate(subjects):
            after = s.after if s.mode in ("detach", ".data") else None
            with s.around():
                works: tuple[Callable[[], Any], ...] = (
                    (lambda s=s, after=after: after(s.leaf * 2)) if after else (lambda s=s: s.leaf.mul(2)),
                    lambda s=s: s.plain.add_(0),
                    lambda s=s: s.leaf.view(2, 2),
                )
                for which, work in enumerate(works):
                    best[at][which] = min(best[at][which], _seconds(work, params.device))
            best[at][3] = min(best[at][3], _seconds(lambda s=s: _enter(s), params.device))
    return best


def _enter(s: _Subject) -> None:
    with _ENTER[s.mode]():
        pass


def _seconds(work: Callable[[], Any], device: str, calls: int = CALLS) -> float:
    _wait(device)
    started = time.perf_counter()
    for _ in range(calls):
        work()
    _wait(device)
    return (time.perf_counter() - started) / calls


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure_switches(params: Params) -> tuple[SwitchCell, ...]:
    """Train and eval with each gradient mode, on 128 rows of a network with BatchNorm and Dropout."""
    net = nn.Sequential(
        nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10),
    )  # fmt: skip
    x = torch.randn(128, 64)
    pairs = [(training, mode) for training in (True, False) for mode in SWITCHED]
    best = dict.fromkeys(pairs, float("inf"))
    for _ in range(2 * params.repeats):
        for training, mode in pairs:
            net.train(training)
            with _ENTER[mode]():
                best[training, mode] = min(best[training, mode], _seconds(lambda: net(x), params.device, 5))
    return tuple(_cell(net, x, training, mode, best[training, mode]) for training, mode in pairs)


def _cell(net: nn.Sequential, x: torch.Tensor, training: bool, mode: str, forward_s: float) -> SwitchCell:
    net.train(training)
    norm = net[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    before = norm.running_mean.clone()
    y, saved = _forward(net, x, _ENTER[mode], lambda t: t)
    moved = not torch.equal(before, norm.running_mean)
    with _ENTER[mode]():
        same = torch.equal(net(x), net(x))
    return SwitchCell(training, mode, y.requires_grad, y.is_inference(), _nodes(y), saved, moved, same, forward_s)


def _nodes(y: torch.Tensor) -> int:
    found: set[Any] = set()
    todo: list[Any] = [y.grad_fn] if y.grad_fn is not None else []
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += [parent for parent, _ in node.next_functions if parent is not None]
    return len(found)
