"""What recording every operation with its bits costs, against the bare training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.turns import in_turns, line
from lab.experiments.reproducibility.recording import Recorder
from lab.workloads.repeatable import built


def measure() -> Iterator[dict[str, Any]]:
    """One thread, as in a worker."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def recorded() -> None:
        recorder = Recorder(tape=True)
        with recorder:
            train(recorder)

    def train(recorder: Recorder | None = None) -> None:
        training = built("nothing", 0, recorder.told if recorder else lambda place: None)
        for at in range(6):
            training.step(at)

    try:
        ours, theirs = in_turns(recorded, train, rounds=9)
        yield line("six steps with the bits of every result", ours, theirs, "recorded against bare", better="lower")
    finally:
        torch.set_num_threads(threads)
