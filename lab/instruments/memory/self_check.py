"""The memory track against closed forms, on this host: a page shows no wrong numbers on a torch that broke an assumption."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache

import torch
from torch import nn

from lab import torch_private
from lab.instruments.memory.timeline import peak, read, thinned
from lab.instruments.memory.tracker import BEGIN, END, MemoryTrack, moment
from lab.instruments.memory.unseen import add_unseen, peak_bytes, recorded
from lab.torch_private import NotAvailableError

_ROWS, _IN, _HIDDEN, _OUT = 32, 64, 128, 10


def _mlp_step(fake: bool) -> tuple[MemoryTrack, int]:
    """One SGD step of a small network; the track and the event after its forward."""
    mode = torch_private.FakeMode() if fake else torch.enable_grad()
    with mode:
        model = nn.Sequential(nn.Linear(_IN, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, _OUT))
        x, y = torch.zeros(_ROWS, _IN), torch.zeros(_ROWS, dtype=torch.long)
        track = MemoryTrack({"": model}, torch.optim.SGD(model.parameters()), {"x": x, "y": y})
        with track:
            loss = nn.functional.cross_entropy(model(x), y)
            forward = len(track.ledger.events) - 1
            loss.backward()
    return track, forward


def _closed_form(fake: bool) -> None:
    track, forward = _mlp_step(fake)
    reading = read(track)
    parameters = 4 * (_IN * _HIDDEN + _HIDDEN + _HIDDEN * _OUT + _OUT)
    after_forward, after = reading.categories(forward), reading.categories(-1)
    assert after_forward["parameters"] == parameters, after_forward
    assert after_forward["saved"] == _ROWS * _HIDDEN * 4 + _ROWS * _OUT * 4 + 4, after_forward
    assert (after["gradients"], after["saved"]) == (parameters, 0), after
    assert peak(reading, thinned(reading)).bytes == max(reading.totals)


def _measured_closed_form() -> None:
    _closed_form(fake=False)


def _predicted_closed_form() -> None:
    _closed_form(fake=True)


def _meeting_gradients(mode: MemoryTrack | None) -> None:
    """Two layers of one weight around a connection that skips them: gradients meet at the weight and at the input."""
    layer = nn.Linear(_IN, _IN)
    x = torch.zeros(_ROWS, _IN, requires_grad=True)
    with mode or contextlib.nullcontext():
        moment(BEGIN)
        hidden = torch.tanh(x)
        (hidden + layer(torch.tanh(layer(hidden)))).square().sum().backward()
        moment(END)


def _the_bytes_of_a_bare_run() -> None:
    bare = recorded(lambda: _meeting_gradients(None))
    track = MemoryTrack({}, for_allocator=True)
    add_unseen(track, recorded(lambda: _meeting_gradients(track)))
    assert any(event.bytes == 4 * _ROWS * _IN for event in bare[0]), "the profiler shows no allocations"
    assert max(read(track).totals) == peak_bytes(bare), (max(read(track).totals), peak_bytes(bare))


SELF_TESTS: dict[str, Callable[[], None]] = {
    "memory track: closed form of a small network": _measured_closed_form,
    "memory track: the same on fake tensors": _predicted_closed_form,
    "memory track: the bytes of a bare run": _the_bytes_of_a_bare_run,
}


def require_working() -> None:
    """Raise NotAvailableError when the track does not hold here. Checked once a process."""
    needed = [_measured_closed_form] if torch_private.missing("allocation events") else SELF_TESTS.values()
    if why := next(filter(None, (_broken(test) for test in needed if test is not _predicted_closed_form)), ""):
        raise NotAvailableError(why)


def prediction_missing() -> str:
    """Why there are no predictions on fake tensors here; empty when there are."""
    return torch_private.missing("fake tensors") or _broken(_predicted_closed_form)


@cache
def _broken(test: Callable[[], None]) -> str:
    try:
        test()
    except Exception as error:  # noqa: BLE001 - an unknown release may raise anything; the reason is shown
        name = next(name for name, known in SELF_TESTS.items() if known is test)
        return f"{name}: not available with torch {torch.__version__} ({type(error).__name__}: {error})"[:500]
    return ""
