"""What depends on threads and batch size on this host, what deterministic algorithms refuse and cost, and what is pinned."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from lab.experiments.reproducibility.recording import bits_of
from lab.records.reproducing import Refused, Sensitive, Source
from lab.workloads.repeatable import built, circumstances

_BATCHES = (1, 2, 3, 4, 8, 16, 32)
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _own(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _gradient_of_indexing() -> torch.Tensor:
    table = torch.randn(50, 8, generator=_own()).requires_grad_()
    rows = torch.randint(0, 50, (65_536,), generator=_own())
    weights = torch.randn(65_536, 8, generator=_own(4))
    (table[rows] * weights).sum().backward()
    assert table.grad is not None
    return table.grad


def _index_put() -> torch.Tensor:
    rows = torch.randint(0, 50, (65_536,), generator=_own())
    return torch.zeros(50).index_put_((rows,), torch.randn(65_536, generator=_own(4)), accumulate=True)


def _layer_norm_gradient() -> torch.Tensor:
    weight = torch.ones(256, requires_grad=True)
    x = torch.randn(512, 256, generator=_own())
    (F.layer_norm(x, (256,), weight) * torch.randn(512, 256, generator=_own(4))).sum().backward()
    assert weight.grad is not None
    return weight.grad


OPERATIONS: dict[str, Callable[[], torch.Tensor]] = {
    "gradient of x[index]": _gradient_of_indexing,
    "index_put, adding": _index_put,
    "gradient of layer_norm's weight": _layer_norm_gradient,
    "sum of a million": lambda: torch.randn(1 << 20, generator=_own()).sum(),
    "dot of a million": lambda: torch.dot(torch.randn(1 << 20, generator=_own()), torch.randn(1 << 20, generator=_own(4))),
    "matrix product, 512": lambda: torch.randn(512, 512, generator=_own()) @ torch.randn(512, 512, generator=_own(4)),
    "softmax": lambda: torch.randn(512, 512, generator=_own()).softmax(1),
    "convolution": lambda: F.conv2d(torch.randn(8, 8, 16, 16, generator=_own()), torch.randn(8, 8, 3, 3, generator=_own(4))),
}  # fmt: skip


def _rows_of(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    weight = torch.randn(64, 256, generator=_own(5))
    return {
        "linear": lambda x: F.linear(x, weight),
        "softmax": lambda x: x.softmax(1),
        "layer_norm": lambda x: F.layer_norm(x, (256,)),
        "gelu": F.gelu,
        "linear in float64": lambda x: F.linear(x.double(), weight.double()),
    }[name]


BY_BATCH = ("linear", "softmax", "layer_norm", "gelu", "linear in float64")


def sensitive(repeats: int, told: Callable[[float, str], None]) -> Iterator[Sensitive]:
    """Each operation with one thread and two, again and again, and with deterministic algorithms."""
    names = list(OPERATIONS)
    for at, name in enumerate(names):
        told(at / len(names), name)
        make = OPERATIONS[name]
        alone = bits_of([make()])
        if _CORES < 2:
            yield Sensitive(name, None, 1, 1, 1, ())
            continue
        with circumstances("threads"):
            found = {bits_of([make()]) for _ in range(repeats)}
            yield Sensitive(name, found == {alone}, len(found), repeats, _under_flag(make, repeats), ())
    for name in BY_BATCH:
        yield Sensitive(name, None, 1, 1, 1, tuple(_batches_that_differ(_rows_of(name))))


def _under_flag(make: Callable[[], torch.Tensor], repeats: int) -> int:
    with circumstances("deterministic"):
        try:
            return len({bits_of([make()]) for _ in range(repeats)})
        except RuntimeError:
            return -1


def _batches_that_differ(call: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[int]:
    rows = torch.randn(64, 256, generator=_own(6))
    whole = call(rows)[0]
    for size in _BATCHES:
        if not torch.equal(call(rows[:size])[0], whole):
            yield size


_TRIED: dict[str, Callable[[], object]] = {
    "put_ with duplicates": lambda: torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0])),
    "scatter with duplicates": lambda: torch.zeros(3).scatter(0, torch.tensor([0, 0, 1]), torch.tensor([1.0, 2.0, 3.0])),
    "index_copy with duplicates": lambda: torch.zeros(3).index_copy(0, torch.tensor([0, 0]), torch.tensor([1.0, 2.0])),
    "index_add": lambda: torch.zeros(3).index_add(0, torch.tensor([0, 0]), torch.tensor([1.0, 2.0])),
    "index_put, adding": lambda: torch.zeros(3).index_put((torch.tensor([0, 0]),), torch.ones(2), accumulate=True),
    "max_unpool2d": lambda: F.max_unpool2d(torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.long), [2, 2]),
    "cumsum": lambda: torch.ones(4).cumsum(0),
    "bincount with weights": lambda: torch.bincount(torch.tensor([0, 1]), torch.ones(2)),
    "median": lambda: torch.ones(4).median(),
    "interpolate, bilinear, gradient": lambda: F.interpolate(
        torch.ones(1, 1, 4, 4, requires_grad=True), scale_factor=2, mode="bilinear"
    ).sum().backward(),
    "cross entropy of pictures": lambda: F.cross_entropy(torch.ones(1, 2, 4, 4), torch.zeros(1, 4, 4, dtype=torch.long)),
    "embedding gradient": lambda: nn.Embedding(4, 2)(torch.tensor([1, 1])).sum().backward(),
}  # fmt: skip
"""Operations that are documented or known to be refused somewhere; what this host says is measured."""
TRIED = len(_TRIED)


def refused() -> Iterator[Refused]:
    """Which of them deterministic algorithms refuse here."""
    with circumstances("deterministic"):
        for name, call in _TRIED.items():
            try:
                call()
            except RuntimeError as error:
                yield Refused(name, str(error).split(". ")[0][:300])


def step_cost() -> dict[str, float]:
    """Seconds of a training step, the shortest of rounds in turns: as it is, deterministic, and that without filling memory."""
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    settings = {
        "as it is": ("nothing", True),
        "deterministic": ("deterministic", True),
        "deterministic, memory not filled": ("deterministic", False),
    }
    trainings = {name: built("nothing", 0) for name in settings}
    best: dict[str, float] = {}
    try:
        for at in range(12):
            for name, (change, filled) in settings.items():
                memory.fill_uninitialized_memory = filled
                with circumstances(change):
                    started = time.perf_counter()
                    trainings[name].step(at)
                    seconds = time.perf_counter() - started
                if at > 1:
                    best[name] = min(best.get(name, seconds), seconds)
    finally:
        memory.fill_uninitialized_memory = fill
    return best


def sources(seeded: bool) -> Iterator[Source]:
    """Everything that results may depend on, with its value here; pinned where a run of the lab fixes it."""
    yield Source("seed of torch, Python and NumPy", "set before each run" if seeded else "not set", seeded)
    yield Source("torch", torch.__version__, True)
    yield Source("Python", platform.python_version(), True)
    yield Source("instructions of the processor", torch.backends.cpu.get_cpu_capability(), False)
    yield Source("processor", platform.processor() or platform.machine(), False)
    yield Source("threads", str(torch.get_num_threads()), True)
    yield Source("cores", str(_CORES), False)
    yield Source("deterministic algorithms", "on" if torch.are_deterministic_algorithms_enabled() else "off", True)
    yield Source("oneDNN", "on" if torch.backends.mkldnn.enabled else "off", True)
    yield Source("precision of float32 products", torch.get_float32_matmul_precision(), True)
    yield Source(
        "order of sets of text (PYTHONHASHSEED)",
        os.environ.get("PYTHONHASHSEED", "random"),
        "PYTHONHASHSEED" in os.environ,
    )
    yield Source("device", "cuda" if torch.cuda.is_available() else "cpu", False)
    yield Source("batch size, layout and dtype", "part of the program", False)
    yield Source("data on disk and its order", "part of the program", False)
