"""Copies by kind and size: on the host, and to and from a GPU where there is one."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator

import torch

from lab.records.transfers import Bandwidth, Flag, Lanes

_SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
_ROUNDS, _EARLY = 12, 20


def host_copies(told: Callable[[float, str], None]) -> Bandwidth:
    """Contiguous, transposed and converted, the shortest of rounds in turns."""
    rows: list[tuple[str, int, float]] = []
    for at, size in enumerate(_SIZES):
        told(at / len(_SIZES), f"{size:,} bytes")
        side = int((size // 4) ** 0.5)
        source, target = torch.ones(side, side), torch.empty(side, side)
        turned, half = source.t(), torch.empty(side, side, dtype=torch.bfloat16)
        kinds: dict[str, Callable[[], object]] = {
            "as it lies": lambda s=source, t=target: t.copy_(s),
            "transposed": lambda s=turned, t=target: t.copy_(s),
            "to bfloat16": lambda s=source, t=half: t.copy_(s),
        }
        best = dict.fromkeys(kinds, float("inf"))
        for _ in range(_ROUNDS):
            for kind, copy in kinds.items():
                started = time.perf_counter()
                copy()
                best[kind] = min(best[kind], time.perf_counter() - started)
        rows += [(kind, side * side * 4, seconds) for kind, seconds in best.items()]
    return Bandwidth(*map(tuple, zip(*rows, strict=True)))


def device_copies(told: Callable[[float, str], None]) -> Bandwidth:
    """To and from the GPU, from pageable and pinned memory, and what pinning itself takes. Timed by events."""
    rows: list[tuple[str, int, float]] = []
    for at, size in enumerate(_SIZES):
        told(at / len(_SIZES), f"{size:,} bytes")
        plain = torch.ones(size, dtype=torch.uint8)
        started = time.perf_counter()
        pinned = plain.pin_memory()
        rows.append(("pinning itself", size, time.perf_counter() - started))
        there = torch.empty(size, dtype=torch.uint8, device="cuda")
        for name, act in (
            ("to the device, pageable", lambda p=plain, t=there: t.copy_(p)),
            ("to the device, pinned", lambda p=pinned, t=there: t.copy_(p, non_blocking=True)),
            ("to the host, pageable", lambda p=plain, t=there: p.copy_(t)),
            ("to the host, pinned", lambda p=pinned, t=there: p.copy_(t, non_blocking=True)),
        ):
            rows.append((name, size, min(_by_events(act) for _ in range(_ROUNDS))))
    return Bandwidth(*map(tuple, zip(*rows, strict=True)))


def _by_events(act: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    act()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def overlapped(chunks: int) -> tuple[Lanes, float]:
    """A pinned buffer copied in chunks on one stream, each worked on by another: what ran when, and the share that is hidden."""
    size, work = 1 << 22, torch.randn(512, 512, device="cuda")
    source = torch.ones(chunks, size, pin_memory=True)
    target = torch.empty_like(source, device="cuda")
    copying, computing = torch.cuda.Stream(), torch.cuda.Stream()
    begin = torch.cuda.Event(enable_timing=True)
    marks: list[tuple[str, str, torch.cuda.Event, torch.cuda.Event]] = []
    torch.cuda.synchronize()
    begin.record()
    copying.wait_event(begin)
    computing.wait_event(begin)
    for at in range(chunks):
        with torch.cuda.stream(copying):
            first = _marked(
                marks, "copy", f"chunk {at + 1}", lambda at=at: target[at].copy_(source[at], non_blocking=True)
            )
        with torch.cuda.stream(computing):
            computing.wait_event(first)
            _marked(marks, "compute", f"chunk {at + 1}", lambda: work @ work @ work @ work)
    torch.cuda.synchronize()
    rows = [(lane, name, begin.elapsed_time(a) / 1e3, begin.elapsed_time(b) / 1e3) for lane, name, a, b in marks]
    busy = {lane: sum(end - start for one, _, start, end in rows if one == lane) for lane in ("copy", "compute")}
    both = max(end for *_, end in rows)
    shorter = min(busy.values())
    hidden = 1 - (both - max(busy.values())) / shorter if shorter else 0.0
    return Lanes(*map(tuple, zip(*rows, strict=True))), max(0.0, min(1.0, hidden))


def _marked(marks: list, lane: str, name: str, act: Callable[[], object]) -> torch.cuda.Event:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    act()
    end.record()
    marks.append((lane, name, start, end))
    return end


def early_reads() -> tuple[int, int]:
    """(wrong, reads): a copy to pinned memory behind a long queue, read at once, and again after synchronize."""
    work, there = torch.randn(2048, 2048, device="cuda"), torch.full((1 << 20,), 7.0, device="cuda")
    wrong = 0
    for _ in range(_EARLY):
        target = torch.zeros(1 << 20, pin_memory=True)
        for _ in range(20):
            torch.mm(work, work)  # the queue that the copy stands behind
        target.copy_(there, non_blocking=True)
        wrong += float(target[-1]) != 7.0
        torch.cuda.synchronize()
        if float(target[-1]) != 7.0:
            raise RuntimeError("after synchronize the copy has not arrived")
    return wrong, _EARLY


def flags() -> Iterator[Flag]:
    """What pinning and non_blocking do on this host."""
    x = torch.ones(1000)
    moved = x.to("cpu", non_blocking=True)
    yield Flag(
        'x.to("cpu", non_blocking=True)',
        "returns x itself: nothing is copied" if moved is x else "copies",
        moved is not x,
    )
    try:
        pinned = x.pin_memory()
        yield Flag("x.pin_memory()", f"gives a copy in pinned memory: is_pinned() is {pinned.is_pinned()}", True)
    except RuntimeError as error:
        yield Flag("x.pin_memory()", f"RuntimeError: {str(error).split('. ')[0]}", False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = torch.utils.data.TensorDataset(torch.ones(2))
        (batch,) = next(iter(torch.utils.data.DataLoader(rows, batch_size=2, pin_memory=True)))
    told = " and a warning" if any("pin_memory" in str(w.message) for w in caught) else ""
    yield Flag("DataLoader(..., pin_memory=True)", f"is_pinned() is {batch.is_pinned()}{told}", batch.is_pinned())
